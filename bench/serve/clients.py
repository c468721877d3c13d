#!/usr/bin/env python3
"""Tests a running `myxtts serve` with real clients: the `openai` package, the requests of SillyTavern and Open WebUI, `curl`,
WebSockets and the `wyoming` package. Audio of every format is decoded by ffmpeg.

    pip install openai wyoming websockets
    bench/serve/clients.py --url http://127.0.0.1:8020 --wyoming 10200 [--token TOKEN] --binary target/debug/myxtts --model DIR

Prints one line per check: `ok`, or what failed. The exit status is the number of failed checks. With --binary and --model, a
second server is started and stopped by SIGTERM during a sentence: it must finish the sentence and exit with 143.
"""
import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--url", default="http://127.0.0.1:8020")
parser.add_argument("--token")
parser.add_argument("--voice", default="default")
parser.add_argument("--wyoming", type=int)
parser.add_argument("--binary")
parser.add_argument("--model")
options = parser.parse_args()
TEXT = "hello world, this is a voice."
failed = 0


def check(name):
    def run(function):
        global failed
        start = time.perf_counter()
        try:
            detail = function() or ""
            print(f"ok    {name}: {detail} ({time.perf_counter() - start:.2f} s)", flush=True)
        except Exception as error:  # a failure is reported, and the next check runs
            failed += 1
            print(f"FAIL  {name}: {type(error).__name__}: {error}", flush=True)
    return run


def ask(path, body=None, method=None, token=options.token, headers=None):
    """Returns status, headers and body of an answer, with Python's own client."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(options.url + path, data=data, method=method, headers=headers or {})
    if data is not None:
        request.add_header("Content-Type", "application/json")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def decoded(data, suffix):
    """Decodes audio with ffmpeg, checks that it is not silent, and returns its length in seconds."""
    raw = ["-f", "s16le", "-ar", "24000", "-ac", "1"] if suffix == "pcm" else []
    out = subprocess.run(["ffmpeg", "-v", "error", *raw, "-i", "pipe:0", "-f", "s16le", "-ar", "24000", "-ac", "1", "pipe:1"],
                         input=data, capture_output=True, check=True)
    assert not out.stderr, out.stderr.decode()
    samples = memoryview(out.stdout).cast("h")
    assert len(samples) and max(map(abs, samples)) > 300, f"{len(samples)} samples, all silent"
    return len(samples) / 24000


def speech(**more):
    return {"model": "tts-1", "input": TEXT, "voice": options.voice, **more}


import openai  # noqa: E402

client = openai.OpenAI(base_url=options.url + "/v1", api_key=options.token or "none", max_retries=0)
seconds = {}

for kind in ["mp3", "opus", "flac", "wav", "pcm"]:
    @check(f"openai, speech.create, {kind}")
    def _():
        answer = client.audio.speech.create(model="tts-1", voice=options.voice, input=TEXT, response_format=kind)
        seconds[kind] = decoded(answer.content, kind)
        return f"{len(answer.content)} bytes, {seconds[kind]:.2f} s by ffmpeg"


@check("all formats have the same length")
def _():
    least, most = min(seconds.values()), max(seconds.values())
    assert most - least < 0.1, seconds


@check("openai, aac is refused by name")
def _():
    try:
        client.audio.speech.create(model="tts-1", voice=options.voice, input=TEXT, response_format="aac")
    except openai.BadRequestError as error:
        assert error.param == "response_format" and error.code == "unsupported_value", error
        return error.message


@check("openai, with_streaming_response")
def _():
    start, first, pieces = time.perf_counter(), None, 0
    with client.audio.speech.with_streaming_response.create(
            model="tts-1", voice=options.voice, input=" ".join([TEXT] * 5), response_format="pcm") as answer:
        for piece in answer.iter_bytes(1024):
            first = first or time.perf_counter() - start
            pieces += 1
    took = time.perf_counter() - start
    assert pieces > 5 and first < took, (pieces, first, took)
    return f"first bytes after {1000 * first:.0f} ms of {1000 * took:.0f} ms"


@check("openai, speed")
def _():
    slow = client.audio.speech.create(model="tts-1", voice=options.voice, input=TEXT, response_format="pcm", speed=0.5)
    ratio = decoded(slow.content, "pcm") / seconds["pcm"]
    assert 1.8 < ratio < 2.2, ratio
    return f"half the speed is {ratio:.2f} times as long"


@check("openai, server-sent events")
def _():
    status, headers, body = ask("/v1/audio/speech", speech(stream_format="sse", response_format="mp3"))
    assert status == 200 and headers["content-type"] == "text/event-stream", (status, headers["content-type"])
    events = [json.loads(line[6:]) for line in body.decode().split("\n\n") if line]
    import base64
    sound = b"".join(base64.b64decode(event["audio"]) for event in events if event["type"] == "speech.audio.delta")
    assert events[-1]["type"] == "speech.audio.done" and events[-1]["usage"]["total_tokens"] > 0, events[-1]
    return f"{len(events)} events, {decoded(sound, 'mp3'):.2f} s"


@check("openai, models.list and errors of invalid requests")
def _():
    names = [model.id for model in client.models.list()]
    for bad, param in [({"input": ""}, "input"), ({"voice": "nobody"}, "voice"), ({"speed": 9}, "speed")]:
        try:
            client.audio.speech.create(**{"model": "tts-1", "voice": options.voice, "input": TEXT, **bad})
            raise AssertionError(f"{bad} was accepted")
        except openai.BadRequestError as error:
            assert error.param == param and set(error.body) >= {"message", "type", "param", "code"}, error.body
    try:
        client.audio.speech.create(model="another", voice=options.voice, input=TEXT)
    except openai.NotFoundError as error:
        return f"{names}; {error.message}"


@check("Open WebUI: voices and models as it reads them, its speech request")
def _():
    voices = json.loads(ask("/v1/audio/voices")[2])["voices"]
    assert all({"id", "name"} <= set(voice) for voice in voices) and voices, voices
    models = json.loads(ask("/v1/audio/models")[2])["models"]
    assert all("id" in model for model in models) and models, models
    status, _, body = ask("/v1/audio/speech", {"input": TEXT, "model": models[0]["id"], "voice": options.voice})
    assert status == 200, body
    return f"{len(voices)} voices, {decoded(body, 'mp3'):.2f} s of mp3"


@check("SillyTavern: speakers, languages, settings, tts_stream, tts_to_audio")
def _():
    speakers = json.loads(ask("/speakers")[2])
    assert speakers and {"name", "voice_id", "preview_url"} <= set(speakers[0]), speakers
    languages = json.loads(ask("/languages")[2])["languages"]
    settings = {"temperature": 0.75, "speed": 1, "length_penalty": 1, "repetition_penalty": 5, "top_k": 50, "top_p": 0.85,
                "enable_text_splitting": True, "stream_chunk_size": 100}
    assert ask("/set_tts_settings", settings)[0] == 200
    query = urllib.parse.urlencode({"text": TEXT, "speaker_wav": options.voice, "language": "en"})
    streamed = ask(f"/tts_stream/?{query}")
    whole = ask("/tts_to_audio/", {"text": TEXT, "speaker_wav": options.voice, "language": "en"},
                headers={"Cache-Control": "no-cache"})
    assert streamed[0] == whole[0] == 200 and streamed[2] == whole[2]
    return f"{languages}, {decoded(whole[2], 'wav'):.2f} s of wav"


@check("curl, plain and with a body from a file")
def _():
    with tempfile.NamedTemporaryFile(suffix=".wav") as out:
        header = ["-H", f"Authorization: Bearer {options.token}"] if options.token else []
        command = ["curl", "-sS", "--fail-with-body", options.url + "/v1/audio/speech", "-H", "Content-Type: application/json",
                   *header, "-d", json.dumps(speech(response_format="wav")), "-o", out.name]
        subprocess.run(command, check=True)
        probe = subprocess.run(["ffprobe", "-v", "error", "-show_entries", "stream=sample_rate,channels", "-of", "csv=p=0", out.name],
                               capture_output=True, check=True, text=True).stdout.strip()
        assert probe == "24000,1", probe
        return f"{os.path.getsize(out.name)} bytes"


@check("a client that disconnects stops its speech")
def _():
    count = lambda: float(next(line.split()[1] for line in ask("/metrics")[2].decode().splitlines()
                               if line.startswith("myxtts_cancelled_total")))
    before = count()
    with client.audio.speech.with_streaming_response.create(
            model="tts-1", voice=options.voice, input=" ".join([TEXT] * 100), response_format="pcm") as answer:
        next(answer.iter_bytes(1024))
    start = time.perf_counter()
    while count() == before:
        assert time.perf_counter() - start < 20, "speech was not stopped"
        time.sleep(0.02)
    return f"stopped after {1000 * (time.perf_counter() - start):.0f} ms"


@check("a batch")
def _():
    items = [{"input": TEXT, "id": f"n{number}", "seed": number} for number in range(12)]
    body = speech(response_format="flac", items=items)
    del body["input"]
    status, _, answer = ask("/v1/audio/speech/batch", body)
    lines = [json.loads(line) for line in answer.decode().splitlines()]
    assert status == 200 and sorted(line["index"] for line in lines) == list(range(12)), answer[:300]
    assert all(line["seconds"] > 0 for line in lines), lines
    return f"{sum(line['seconds'] for line in lines):.1f} s of audio"


@check("a WebSocket: audio while more text arrives, cancel")
def _():
    import websockets

    async def talk():
        headers = {"Authorization": f"Bearer {options.token}"} if options.token else {}
        address = options.url.replace("http", "ws") + "/v1/audio/speech/stream"
        async with websockets.connect(address, additional_headers=headers) as socket:
            await socket.send(json.dumps({"voice": options.voice, "language": "en"}))
            start, first, sound = time.perf_counter(), None, b""
            for word in f"{TEXT} This is the".split(" "):
                await socket.send(json.dumps({"text": word + " "}))
            while not sound:
                message = await socket.recv()
                assert isinstance(message, bytes), message
                sound, first = message, time.perf_counter() - start
            await socket.send(json.dumps({"text": "world."}))
            await socket.send(json.dumps({"type": "end"}))
            while isinstance(message := await socket.recv(), bytes):
                sound += message
            assert json.loads(message)["type"] == "done", message
        async with websockets.connect(address, additional_headers=headers) as socket:
            await socket.send(json.dumps({"voice": options.voice, "language": "en"}))
            await socket.send(json.dumps({"text": " ".join([TEXT] * 30), "flush": True}))
            assert isinstance(await socket.recv(), bytes)
            await socket.send(json.dumps({"type": "cancel"}))
            while isinstance(message := await socket.recv(), bytes):
                pass
            assert json.loads(message)["type"] == "cancelled", message
        return f"first audio after {1000 * first:.0f} ms, {decoded(sound, 'pcm'):.2f} s"

    return asyncio.run(talk())


if options.wyoming:
    @check("the wyoming package: describe, synthesize, synthesize-start/-chunk/-stop")
    def _():
        from wyoming.audio import AudioChunk, AudioStart, AudioStop
        from wyoming.client import AsyncTcpClient
        from wyoming.info import Describe, Info
        from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop, SynthesizeStopped, SynthesizeVoice

        async def sound(wyoming, last):
            rate, pcm = None, b""
            while True:
                event = await asyncio.wait_for(wyoming.read_event(), 60)
                if AudioStart.is_type(event.type):
                    rate = AudioStart.from_event(event).rate
                elif AudioChunk.is_type(event.type):
                    pcm += AudioChunk.from_event(event).audio
                if last.is_type(event.type):
                    assert rate == 24000 and len(pcm) > 2000, (rate, len(pcm))
                    return len(pcm) / 48000

        async def talk():
            async with AsyncTcpClient("127.0.0.1", options.wyoming) as wyoming:
                await wyoming.write_event(Describe().event())
                info = Info.from_event(await wyoming.read_event())
                voices = [voice.name for voice in info.tts[0].voices]
                voice = SynthesizeVoice(name=options.voice)
                await wyoming.write_event(Synthesize(text=TEXT, voice=voice).event())
                whole = await sound(wyoming, AudioStop)
                await wyoming.write_event(SynthesizeStart(voice=voice).event())
                for word in f"{TEXT} This is the world.".split(" "):
                    await wyoming.write_event(SynthesizeChunk(text=word + " ").event())
                await wyoming.write_event(Synthesize(text=TEXT, voice=voice).event())
                await wyoming.write_event(SynthesizeStop().event())
                pieces = await sound(wyoming, SynthesizeStopped)
                assert info.tts[0].supports_synthesize_streaming
                return f"{voices}; {whole:.2f} s whole, {pieces:.2f} s in pieces"

        return asyncio.run(talk())


if options.token:
    @check("clients without the token are refused")
    def _():
        for path in ["/v1/models", "/speakers", "/metrics", "/health", "/v1/audio/voices"]:
            for token in [None, "wrong-token", options.token[:-1]]:
                assert ask(path, token=token)[0] == 401, (path, token)
        try:
            openai.OpenAI(base_url=options.url + "/v1", api_key="wrong", max_retries=0).models.list()
            raise AssertionError("a wrong token was accepted")
        except openai.AuthenticationError as error:
            return error.message


if options.binary and options.model:
    @check("a full queue answers 429 with Retry-After; SIGTERM during speech: the sentence is finished, exit 143")
    def _():
        server = subprocess.Popen([options.binary, "serve", "--model", options.model, "--port", "0", "--device", "cpu", "--queue", "1",
                                   "--slots", "1"], stdout=subprocess.PIPE, text=True)
        try:
            url = server.stdout.readline().split()[-1]
            assert server.stdout.readline().startswith("ready")
            own = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
            long = dict(model="tts-1", voice=options.voice, input=" ".join([TEXT] * 60), response_format="pcm")
            answers, refused = [], None
            with own.audio.speech.with_streaming_response.create(**long) as first:
                pieces = first.iter_bytes(4096)
                received = len(next(pieces))
                waiting = [subprocess.Popen(["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code} %header{retry-after}", url + "/v1/audio/speech",
                                             "-H", "Content-Type: application/json", "-d", json.dumps(speech(input=long["input"]))],
                                            stdout=subprocess.PIPE, text=True) for _ in range(6)]
                time.sleep(1.0)
                server.send_signal(signal.SIGTERM)
                received += sum(len(piece) for piece in pieces)
            codes = [one.communicate(timeout=120)[0] for one in waiting]
            status = server.wait(timeout=120)
            assert status == 143, status
            assert any(code.startswith("429 ") and code.split()[1].isdigit() for code in codes), codes
            return f"{received / 48000:.0f} s were sent in all; other requests: {sorted(codes)}; exit {status}"
        finally:
            server.kill()

print(f"{failed} failed" if failed else "all passed")
sys.exit(min(failed, 100))
