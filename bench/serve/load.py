#!/usr/bin/env python3
"""Puts load on a server with OpenAI's speech API: open-loop Poisson arrivals, listeners, or concurrent requests.

    bench/serve/load.py --url http://127.0.0.1:8020 --rate 1 --rate 10 --rate 20 --seconds 60
    bench/serve/load.py --url ... --listeners 64 --listeners 256 --streams 64 --seconds 30
    bench/serve/load.py --url ... --rate 5 --cancel 0.3 --seconds 240 --server-pid PID

Needs only Python's standard library. Prints one JSON line per setting:

    first_ms    from sending a request to the first bytes of its audio, p50 / p95 / p99
    audible_ms  the same to the first sample above -50 dBFS, for a player that starts with the first bytes
    underruns   times such a player ran out of audio; underrun_s: the total length of these gaps
    speed       seconds of audio received per second of the run
    late        share of requests that took longer than their audio lasts
    failed      requests that were refused, broken or empty; all requests count
    gpu         utilisation in percent (mean, maximum) and memory in MiB (first, last), sampled by nvidia-smi
    server      resident memory in MiB (eight samples and the last), cores used by all threads and by the busiest thread, and
                seconds per kind of work of the thread that speaks, from /metrics

With --mixed, other kinds of requests are sent too, whose answers must be complete; only PCM requests are timed.

With --rate, requests are sent at random times, whether earlier ones were answered or not. With --listeners N, N clients play
audio in real time: each starts at a random time and requests the next text when the last one has been played. With --streams N,
N requests are always in progress: the next is sent as soon as one is received. All random choices depend only on --seed, so
every server gets the same arrivals.
"""
import argparse
import asyncio
import json
import os
import random
import shutil
import struct
import sys
import time
import urllib.parse
import urllib.request

RATE = 24_000
AUDIBLE = int(0.003 * 32768)

# Requests that --mixed sends: formats, server-sent events, a batch, and an unknown voice, which must be answered with 400.
KINDS = ["pcm", "pcm", "pcm", "wav", "mp3", "opus", "flac", "sse", "batch", "wrong"]

# Seconds within which listeners start.
SPREAD = 5.0

# About 100 characters each, of letters in the vocabulary of the model with random weights.
TEXTS = [
    "hello. this is a voice in the world, and it is the voice that is again in the world, hello, hello, hello.",
    "this is the world and this is a voice, a voice that is in the world again and again, and is hello to it.",
    "the voice is in the world, the world is in the voice, and again it is the voice that is in this world, hello.",
    "hello world, this is a voice, and again hello to the world, this is the voice that is in it, hello again.",
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
        self.kind = "pcm"
        self.bytes = 0


async def speak_or_leave(options, text, outcome, leave_after):
    """Sends one request whose client may disconnect, at any stage of the answer."""
    try:
        await asyncio.wait_for(speak(options, text, outcome), leave_after)
    except asyncio.TimeoutError:
        outcome.cancelled = True


async def speak(options, text, outcome):
    """Sends one request; audio is timed as it arrives if it is PCM."""
    url = urllib.parse.urlparse(options.url)
    outcome.kind = random.choice(KINDS) if options.mixed else "pcm"
    payload = {"model": options.model, "input": text, "voice": options.voice, "response_format": outcome.kind,
               "seed": random.randrange(1 << 32)}
    path, expected = "/v1/audio/speech", 200
    if outcome.kind == "sse":
        payload.update(response_format="pcm", stream_format="sse")
    elif outcome.kind == "batch":
        path, texts = path + "/batch", payload.pop("input").split(", ")[:3]
        payload.update(response_format="opus", items=[{"input": text} for text in texts])
    elif outcome.kind == "wrong":
        payload.update(response_format="mp3", voice="nobody")
        expected = 400
    body = json.dumps(payload).encode()
    head = [f"POST {path} HTTP/1.1", f"Host: {url.netloc}", "Content-Type: application/json",
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
        if status != expected:
            outcome.error = str(status)
            return
        if outcome.kind != "pcm":
            outcome.bytes = len(await reader.read(-1))
            outcome.error = None if outcome.bytes else "empty"
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
        outcome.took = time.perf_counter() - start
        if not samples:
            outcome.error = "empty"
    except (OSError, asyncio.IncompleteReadError, ValueError, IndexError) as error:
        outcome.error = type(error).__name__
    finally:
        if writer:
            writer.close()


class Server:
    """Samples memory and CPU time of the server's process during a measurement."""

    def __init__(self, options):
        self.options = options
        self.pid = options.server_pid
        self.start = time.perf_counter()
        self.threads = self.times()
        self.work = self.worked()
        self.memory = []
        self.next_sample = self.start

    def times(self):
        """Returns name and CPU seconds of each thread."""
        found = {}
        if self.pid:
            for thread in os.listdir(f"/proc/{self.pid}/task"):
                try:
                    with open(f"/proc/{self.pid}/task/{thread}/stat") as stat:
                        name, fields = stat.read().rsplit(") ", 1)
                    fields = fields.split()
                    found[thread] = (name.split("(", 1)[1], (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
                except OSError:
                    pass
        return found

    def worked(self):
        """Returns the counters of the thread that speaks, from /metrics."""
        if not self.pid:
            return {}
        request = urllib.request.Request(self.options.url + "/metrics")
        if self.options.token:
            request.add_header("Authorization", f"Bearer {self.options.token}")
        with urllib.request.urlopen(request) as lines:
            rows = [line.decode().split() for line in lines]
        named = {row[0]: float(row[1]) for row in rows if len(row) == 2}
        wanted = ("myxtts_work_seconds_total", "myxtts_rounds_total")
        return {name: value for name, value in named.items() if name.startswith(wanted)}

    def resident(self):
        with open(f"/proc/{self.pid}/status") as lines:
            return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS:"))

    def sample(self):
        if self.pid and len(self.memory) < 8 and time.perf_counter() >= self.next_sample:
            self.memory.append(self.resident())
            self.next_sample += self.options.seconds / 8

    def used(self):
        if not self.pid:
            return {}
        seconds = time.perf_counter() - self.start
        self.memory.append(self.resident())
        cores = {thread: (name, spent - self.threads.get(thread, (name, 0.0))[1]) for thread, (name, spent) in self.times().items()}
        busiest = max(cores.values(), key=lambda one: one[1])
        short = lambda name: name.split("work=\"")[-1].rstrip("\"}").removeprefix("myxtts_").removesuffix("_total")
        return {"server": {
            "memory_mib": self.memory,
            "cores": round(sum(spent for _, spent in cores.values()) / seconds, 2),
            "busiest_thread": [busiest[0], round(busiest[1] / seconds, 2)],
            "work": {short(name): round(value - self.work.get(name, 0.0), 3) for name, value in self.worked().items()},
        }}


class Gpu:
    """Samples nvidia-smi during a measurement; empty without a GPU."""

    async def __aenter__(self):
        self.rows, self.process, self.reading = [], None, None
        if shutil.which("nvidia-smi"):
            query = ["nvidia-smi", "--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits", "-lms", "200"]
            pipe = asyncio.subprocess.PIPE
            self.process = await asyncio.create_subprocess_exec(*query, stdout=pipe, stderr=asyncio.subprocess.DEVNULL)
            self.reading = asyncio.create_task(self.read())
        return self

    async def read(self):
        async for line in self.process.stdout:
            values = line.decode().strip().split(", ")
            if len(values) == 2 and all(value.isdigit() for value in values):
                self.rows.append([int(value) for value in values])

    async def __aexit__(self, *_):
        if self.process:
            self.process.terminate()
            await self.process.wait()
            await self.reading

    def used(self):
        if not self.rows:
            return {}
        busy = [busy for busy, _ in self.rows]
        memory = [memory for _, memory in self.rows]
        return {"gpu": {"busy_percent": [round(sum(busy) / len(busy), 1), max(busy)], "memory_mib": [memory[0], memory[-1]]}}


def share(values, part):
    values = sorted(value for value in values if value is not None)
    return round(1000 * values[min(len(values) - 1, int(part * len(values)))], 1) if values else None


def report(setting, outcomes, seconds, used):
    finished = [one for one in outcomes if one.error is None and not one.cancelled and one.kind == "pcm"]
    errors = {}
    for one in outcomes:
        if one.error:
            errors[one.error] = errors.get(one.error, 0) + 1
    quantiles = lambda name: {f"p{int(100 * part)}": share((getattr(one, name) for one in finished), part)
                              for part in (0.5, 0.95, 0.99)}
    line = {
        **setting,
        "requests": len(outcomes),
        "cancelled": sum(one.cancelled for one in outcomes),
        "failed": sum(errors.values()),
        "errors": errors,
        "first_ms": quantiles("first"),
        "audible_ms": quantiles("audible"),
        "underruns": sum(one.underruns for one in finished),
        "underrun_s": round(sum(one.missing for one in finished), 3),
        "sound_s": round(sum(one.sound for one in outcomes), 1),
        "seconds": round(seconds, 1),
        "speed": round(sum(one.sound for one in outcomes) / seconds, 2),
        "late": round(sum(one.took > one.sound for one in finished) / max(1, len(finished)), 3),
    }
    kinds = {}
    for one in outcomes:
        kinds[one.kind] = kinds.get(one.kind, 0) + 1
    if len(kinds) > 1:
        line["kinds"] = kinds
    line.update(used)
    print(json.dumps(line), flush=True)
    return not errors


async def poisson(options, rate, outcomes, sample):
    tasks = []
    start = time.perf_counter()
    due = start
    while due < start + options.seconds:
        while (now := time.perf_counter()) < due:
            await asyncio.sleep(min(due - now, options.seconds / 8))
            sample()
        outcome = Outcome()
        outcomes.append(outcome)
        leave_after = random.uniform(0.0, options.leave_within) if random.random() < options.cancel else None
        tasks.append(asyncio.create_task(speak_or_leave(options, random.choice(TEXTS), outcome, leave_after)))
        due += random.expovariate(rate)
        sample()
    await asyncio.gather(*tasks)


async def at_once(options, count, outcomes, sample, is_played):
    start = time.perf_counter()

    async def one(begin):
        await asyncio.sleep(begin)
        while time.perf_counter() < start + options.seconds:
            outcome = Outcome()
            outcomes.append(outcome)
            sent = time.perf_counter()
            await speak(options, random.choice(TEXTS), outcome)
            sample()
            if is_played and outcome.error is None:
                played = sent + outcome.first + outcome.sound + outcome.missing
                await asyncio.sleep(max(0.0, min(played, start + options.seconds) - time.perf_counter()))
            elif outcome.error is not None:
                # A refused client waits before it tries again.
                await asyncio.sleep(0.1)

    spread = min(SPREAD, options.seconds / 2) if is_played else 0.0
    await asyncio.gather(*(one(random.uniform(0.0, spread)) for _ in range(count)))


async def measure(options, setting, run):
    random.seed(options.seed)
    outcomes = []
    async with Gpu() as gpu:
        server = Server(options)
        start = time.perf_counter()
        await run(outcomes, server.sample)
        seconds = time.perf_counter() - start
        used = server.used()
    return report(setting, outcomes, seconds, {**gpu.used(), **used})


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8020")
    parser.add_argument("--model", default="tts-1")
    parser.add_argument("--voice", default="default")
    parser.add_argument("--token")
    parser.add_argument("--rate", type=float, action="append", default=[], help="Poisson arrivals per second; repeatable")
    parser.add_argument("--listeners", type=int, action="append", default=[], help="clients that play in real time; repeatable")
    parser.add_argument("--streams", type=int, action="append", default=[], help="concurrent requests; repeatable")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--cancel", type=float, default=0.0, help="share of requests whose client disconnects, unless it has its answer by then")
    parser.add_argument("--leave-within", type=float, default=1.0, metavar="SECONDS", help="latest time at which those clients disconnect")
    parser.add_argument("--mixed", action="store_true", help="send all formats, events, batches and invalid requests; only PCM is timed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--server-pid", type=int, metavar="PID", help="process of the server on this machine, whose memory and CPU time are sampled")
    options = parser.parse_args()
    fine = True
    for rate in options.rate:
        setting = {"rate": rate, "cancel": options.cancel} if options.cancel else {"rate": rate}
        fine &= await measure(options, setting, lambda outcomes, sample: poisson(options, rate, outcomes, sample))
    for name, counts in (("listeners", options.listeners), ("streams", options.streams)):
        for count in counts:
            run = lambda outcomes, sample: at_once(options, count, outcomes, sample, name == "listeners")
            fine &= await measure(options, {name: count}, run)
    sys.exit(0 if fine else 1)


asyncio.run(main())
