#!/bin/sh
# A client of inferd in the shell: stream an answer, embed a text, order documents.
#
#     sh client.sh [DIRECTORY]
#
# Needs jq, and the nc of OpenBSD for -U and -N.
set -eu

TIMEOUT_S=60 # of silence, before we give up

if [ $# -gt 0 ]; then
  own=$1 system=$1
else
  system=/run/inferd
  if [ -n "${XDG_RUNTIME_DIR:-}" ]; then own=$XDG_RUNTIME_DIR/inferd
  elif [ -n "${HOME:-}" ]; then own=$HOME/.inferd/run
  else own=/tmp/inferd-$(id -u); fi
fi

# nc cannot ask who listens, so the directory has to be one in which only root, this user
# or a uid in INFERD_TRUST_UID can put a socket.
refuse_foreign() {
  owner=$(stat -c %u "$1") mode=$(stat -c %A "$1")
  case $mode in
    d???????w?) ;;
    d*) case ,0,$(id -u),${INFERD_TRUST_UID:-}, in *,"$owner",*) return ;; esac ;;
  esac
  echo "$1 is not safe; to trust its owner: INFERD_TRUST_UID=$owner" >&2
  exit 1
}

# Frames up to the one that ends the answer. An error frame is a failure, and so is the
# end of the connection before that: then input fails.
FRAMES='
  def frames: input
    | if .type == "error" then error("\(.code): \(.message)")
      elif .type | IN("done", "embeddings", "rerank") then .
      else ., frames end;'

# ask LEAF REQUEST PROGRAM: send one request, run a jq program on the frames that answer.
asked=no
ask() {
  socket=$own/$1
  [ -S "$socket" ] || socket=$system/$1
  if ! [ -S "$socket" ]; then
    echo "no $1: skipped" >&2
    return
  fi
  asked=yes
  refuse_foreign "${socket%/*}"
  # -N ends our side after the request: the daemon answers it all the same, then closes.
  printf '%s\n' "$2" | nc -N -U -w "$TIMEOUT_S" "$socket" |
    jq -n -j --unbuffered "$FRAMES $3"
}

ask infer.sock \
  '{"id":"1","messages":[{"role":"user","content":"What is the capital of France?"}],"max_tokens":200}' \
  'frames | if .type == "token" then .content elif .type == "done" then "\n" else empty end'

ask infer.embed.sock \
  '{"id":"2","input":["Paris is the capital of France"]}' \
  'frames.embeddings[0] | "embedding: \(length) numbers, first \(.[:3] | map(tostring) | join(" "))\n"'

ask infer.rerank.sock \
  '{"id":"3","query":"capital of France","documents":["Berlin is the capital of Germany","Paris is the capital of France","Bread is baked"]}' \
  'frames | "ranking: \([.results[].index | tostring] | join(" "))\n"'

if [ $asked = no ]; then
  echo "no daemon in $own" >&2
  exit 1
fi
