#!/usr/bin/env bash
# vLLM with its output both on the container's own and in the file $LOG_FILE, which outlives the container.
# Signals reach vLLM, its exit code is the container's, and its last words are in the file before the container ends.
set -u
# (names that begin with VLLM_ are vLLM's own: it complains of others)
log=${LOG_FILE:?set LOG_FILE to the file that the exporter reads}

# One start after another in the same file; a large one is put aside first, so that it cannot fill the disk.
if [ "$(stat -c %s "$log" 2>/dev/null || echo 0)" -gt "${LOG_MAX_BYTES:-268435456}" ]; then
  mv "$log" "$log.1"
fi

# The copier ends with vLLM's output, not with the signal that ends vLLM.
exec 3> >(trap '' TERM INT HUP; exec tee -a "$log")
copier=$!

vllm serve "$@" >&3 2>&3 3>&- &
server=$!
exec 3>&-
trap 'kill -TERM "$server" 2>/dev/null' TERM INT HUP

# A signal ends `wait` before the server is gone: wait on, and keep the code of the server, not of the signal.
while :; do
  wait "$server"
  code=$?
  kill -0 "$server" 2>/dev/null || break
done
# The copier ends when nobody holds vLLM's output any more; a worker that vLLM left behind must not keep it.
for _ in {1..50}; do
  kill -0 "$copier" 2>/dev/null || break
  sleep 0.1
done
exit "$code"
