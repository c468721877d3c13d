#!/usr/bin/env bash
# Usage: parity/setup.sh        creates the environment and prints its Python
# The folder is MYXTTS_PARITY_VENV, or one in the temporary folder. pip's own settings select the package index.
set -euo pipefail
venv=${MYXTTS_PARITY_VENV:-${TMPDIR:-/tmp}/myxtts-parity}

if [ ! -x "$venv/bin/python" ]; then "${PYTHON:-python3}" -m venv "$venv"; fi
# Versions that created the committed goldens. coqui-tts imports torchcodec and six but does not depend on them; the torch
# wheel brings its CUDA packages (several GB) although all of this runs on the CPU.
"$venv/bin/pip" install --quiet \
    coqui-tts==0.28.0 coqui-tts-trainer==0.4.0 \
    torch==2.11.0 torchaudio==2.11.0 torchcodec==0.11.1 \
    transformers==4.57.6 tokenizers==0.22.2 num2words==0.5.14 six==1.17.0 \
    safetensors==0.8.0 numpy==2.4.6 soundfile==0.14.0
"$venv/bin/python" -c 'import TTS.tts.models.xtts' 2>/dev/null || {
    echo "coqui-tts was installed into $venv but does not load: try $venv/bin/python -c 'import TTS.tts.models.xtts'" >&2
    exit 1
}
echo "$venv/bin/python"
