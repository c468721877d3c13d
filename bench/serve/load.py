#!/usr/bin/env python3
"""Load on a server that speaks OpenAI's API: open-loop Poisson arrivals, or so many streams at once.

    bench/serve/load.py --url http://127.0.0.1:8020 --rate 1 --rate 10 --rate 20 --seconds 60
    bench/serve/load.py --url ... --streams 8 --streams 64 --seconds 30
    bench/serve/load.py --url ... --rate 5 --cancel 0.3 --seconds 240 --memory-of PID

Nothing but Python's standard library is needed. One JSON line per setting:

    first_ms    from sending a request to the first bytes of its sound, p50 / p95 / p99
    audible_ms  the same to the first sample above -50 dBFS, as a player that begins at once would play it
    underruns   times a player that began with the first bytes had nothing to play, and how long in all
    speed       seconds of sound received, per second of the run
    failed      requests that were refused, broken or empty; nothing is left out

With --rate a request is sent when its time has come, whether others are answered or not. With --streams so many are always being
answered, and `late` is the share of streams that took longer than their sound. The arrivals are drawn from --seed: the same for
everyone who is measured.
"""
import argparse
import asyncio
import json
import random
import struct
import sys
import time
import urllib.parse

RATE = 24_000
AUDIBLE = int(0.003 * 32768)
TEXTS = [
    "hello world, this is a voice.",
    "this is a voice, and hello to the world it is in, hello.",
    "hello. this is a voice. world, hello, this is the voice that is in the world, hello again, and again.",
    "a voice is in the world.",
]


class Outcome:
    def __init__(self):
        self.first = self.audible = None
        self.underruns = 0
        self.missing = 0.0
        self.sound = 0.0
        self.took = 0.0
        self.error = None
        self.cancelled = False


async def speak(options, text, outcome, cancel_after=None):
    """One request; the sound is timed as it comes."""
    url = urllib.parse.urlparse(options.url)
    body = json.dumps({"model": options.model, "input": text, "voice": options.voice, "response_format": "pcm",
                       "seed": random.randrange(1 << 32)}).encode()
    head = [f"POST /v1/audio/speech HTTP/1.1", f"Host: {url.netloc}", "Content-Type: application/json",
            f"Content-Length: {len(body)}", "Connection: close"]
    if options.token:
        head.append(f"Authorization: Bearer {options.token}")
    start = time.perf_counter()
    writer = None
    try:
        reader, writer = await asyncio.open_connection(url.hostname, url.port or 80)
        writer.write(("\r\n".join(head) + "\r\n\r\n").encode() + body)
        await writer.drain()
        status = int((await reader.readline()).split()[1])
        while (await reader.readline()).strip():
            pass
        if status != 200:
            outcome.error = str(status)
            return
        samples, begun, carry = 0, None, b""
        while True:
            size = int((await reader.readline()).strip() or b"0", 16)
            piece = await reader.readexactly(size + 2)
            now = time.perf_counter()
            if size == 0:
                break
            data = carry + piece[:-2]
            whole = len(data) // 2 * 2
            data, carry = data[:whole], data[whole:]
            if begun is None:
                begun = now
                outcome.first = now - start
            else:
                played = begun + samples / RATE
                if now > played:
                    outcome.underruns += 1
                    outcome.missing += now - played
                    begun += now - played
            if outcome.audible is None:
                values = struct.unpack(f"<{len(data) // 2}h", data)
                loud = next((i for i, value in enumerate(values) if abs(value) >= AUDIBLE), None)
                if loud is not None:
                    outcome.audible = begun + (samples + loud) / RATE - start
            samples += len(data) // 2
            outcome.sound = samples / RATE
            if cancel_after is not None and now - start > cancel_after:
                outcome.cancelled = True
                return
        outcome.took = time.perf_counter() - start
        if not samples:
            outcome.error = "empty"
    except (OSError, asyncio.IncompleteReadError, ValueError, IndexError) as error:
        outcome.error = type(error).__name__
    finally:
        if writer:
            writer.close()


def resident(pid):
    with open(f"/proc/{pid}/status") as lines:
        return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS:"))


def share(values, part):
    values = sorted(value for value in values if value is not None)
    return round(1000 * values[min(len(values) - 1, int(part * len(values)))], 1) if values else None


def report(options, setting, outcomes, seconds, memory):
    heard = [one for one in outcomes if one.error is None and not one.cancelled]
    errors = {}
    for one in outcomes:
        if one.error:
            errors[one.error] = errors.get(one.error, 0) + 1
    quantiles = lambda name: {f"p{int(100 * part)}": share((getattr(one, name) for one in heard), part)
                              for part in (0.5, 0.95, 0.99)}
    line = {
        **setting,
        "requests": len(outcomes),
        "cancelled": sum(one.cancelled for one in outcomes),
        "failed": sum(errors.values()),
        "errors": errors,
        "first_ms": quantiles("first"),
        "audible_ms": quantiles("audible"),
        "underruns": sum(one.underruns for one in heard),
        "underrun_s": round(sum(one.missing for one in heard), 3),
        "sound_s": round(sum(one.sound for one in outcomes), 1),
        "seconds": round(seconds, 1),
        "speed": round(sum(one.sound for one in outcomes) / seconds, 2),
        "late": round(sum(one.took > one.sound for one in heard) / max(1, len(heard)), 3),
    }
    if memory:
        line["memory_mib"] = memory
    print(json.dumps(line), flush=True)
    return not errors


async def poisson(options, rate):
    random.seed(options.seed)
    outcomes, tasks, memory = [], [], []
    start = time.perf_counter()
    due = start
    sampled = start
    while due < start + options.seconds:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        outcome = Outcome()
        outcomes.append(outcome)
        cancel = random.uniform(0.0, 1.0) if random.random() < options.cancel else None
        tasks.append(asyncio.create_task(speak(options, random.choice(TEXTS), outcome, cancel)))
        due += random.expovariate(rate)
        if options.memory_of and time.perf_counter() > sampled:
            memory.append(resident(options.memory_of))
            sampled += options.seconds / 8
    await asyncio.gather(*tasks)
    if options.memory_of:
        memory.append(resident(options.memory_of))
    return report(options, {"rate": rate}, outcomes, time.perf_counter() - start, memory)


async def streams(options, count):
    random.seed(options.seed)
    outcomes = []
    start = time.perf_counter()

    async def one():
        while time.perf_counter() < start + options.seconds:
            outcome = Outcome()
            outcomes.append(outcome)
            await speak(options, random.choice(TEXTS), outcome)

    await asyncio.gather(*(one() for _ in range(count)))
    return report(options, {"streams": count}, outcomes, time.perf_counter() - start, [])


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8020")
    parser.add_argument("--model", default="tts-1")
    parser.add_argument("--voice", default="default")
    parser.add_argument("--token")
    parser.add_argument("--rate", type=float, action="append", default=[], help="requests per second; may be repeated")
    parser.add_argument("--streams", type=int, action="append", default=[], help="streams at once; may be repeated")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--cancel", type=float, default=0.0, help="share of requests whose client leaves within a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--memory-of", type=int, metavar="PID", help="sample the resident memory of this process")
    options = parser.parse_args()
    fine = True
    for rate in options.rate:
        fine &= await poisson(options, rate)
    for count in options.streams:
        fine &= await streams(options, count)
    sys.exit(0 if fine else 1)


asyncio.run(main())
