#!/bin/sh
# A worker in plain shell: claims tasks of one type, runs a command for each, writes its outcome. Needs curl and jq.
#
#     DIBS_URL=http://127.0.0.1:8787 DIBS_API_KEY=dibs_... ./worker.sh TYPE COMMAND [ARGUMENT...]
#
# The command reads the task's params (JSON) on standard input; what it prints is the result. Exit code 0 completes the
# task, 65 fails it for good, any other fails the attempt, with the end of standard error as the message. DIBS_TASK_ID
# and DIBS_TOKEN name the claim, for outside systems that can refuse an older token.
# SIGTERM: end after the task that runs now. Twice: give it back.
#
# shellcheck disable=SC2016 # jq expands the variables of its programs
set -u

usage='usage: worker.sh TYPE COMMAND [ARGUMENT...]'
type=${1:?$usage}
: "${2:?$usage}"
shift

url=${DIBS_URL:-http://127.0.0.1:8787}
worker=${WORKER_ID:-shell-$$}
lease=${LEASE:-60}
wait=${WAIT:-20}
stopping=0

main() {
    umask 077
    work=$(mktemp -d) || exit 1
    trap 'rm -rf "$work"' EXIT
    trap 'stopping=$((stopping + 1))' TERM INT
    # In a file, not in an argument: others can read the arguments of a running program.
    printf '%s\n' 'Content-Type: application/json' ${DIBS_API_KEY:+"X-API-Key: $DIBS_API_KEY"} >"$work/headers"
    say "begins: $type"
    while [ "$stopping" = 0 ]; do
        claim "$@"
    done
    say 'stops'
}

# Claim a task and run it. The request_id makes the claim safe to repeat: it answers with what it got the first time.
claim() {
    jq -nc --arg worker "$worker" --arg type "$type" --arg request "$(random 12 x1)" --argjson lease "$lease" \
        --argjson wait "$wait" '{worker_id: $worker, task_types: [$type], lease_seconds: $lease, wait_seconds: $wait,
        request_id: $request}' >"$work/claim.body"
    post claim /api/tasks/claim or_stop || return 0
    case $status in
    200) run "$@" ;;
    404) [ "$(field claim .code)" = null ] || fatal ;; # null: there is nothing to do
    *) fatal ;;
    esac
}

run() {
    id=$(field claim .task.id) token=$(field claim .task.token) limit=$(field claim '.task.timeout_seconds // 0')
    jq -c .task.params "$work/claim.answer" >"$work/params"
    : >"$work/verdict"
    export DIBS_TASK_ID="$id" DIBS_TOKEN="$token"
    timeout -k 5 "$limit" "$@" <"$work/params" >"$work/out" 2>"$work/err" &
    command=$!
    keep &
    keeper=$!
    wait_for "$command"
    code=$?
    kill "$keeper" 2>/dev/null
    wait "$keeper" 2>/dev/null
    conclude
}

# Wait until a process has ended; a signal interrupts `wait`, not us. A second one gives the task back.
wait_for() {
    while :; do
        wait "$1"
        ended=$?
        kill -0 "$1" 2>/dev/null || return "$ended"
        if [ "$stopping" -ge 2 ]; then
            echo released >"$work/verdict"
            kill "$1"
        fi
    done
}

# Beside the command: renew the lease every third of it, and end the command when there is no sense in it any more.
keep() {
    nap=
    trap 'kill $nap 2>/dev/null; exit' TERM
    while :; do
        sleep "$(awk -v lease="$lease" 'BEGIN { print lease / 3 }')" &
        nap=$!
        wait "$nap"
        about '. + {lease_seconds: $lease}' >"$work/renew.body"
        post renew "/api/tasks/$id/renew"
        case $status:$(field renew '.cancel_requested // .code') in
        200:true) verdict=cancelled ;;
        200:*) continue ;;
        *) verdict=lost ;;
        esac
        echo "$verdict" >"$work/verdict"
        kill "$command"
        return
    done
}

conclude() {
    verdict=$(cat "$work/verdict")
    case $verdict:$code in
    lost:*) say "task $id (token $token) is lost" ;; # another worker may have it now: nothing to write
    *:0) finish completed '. + {result: (if $out == "" then null else ($out | try fromjson catch .) end)}' ;;
    released:*) finish released . ;;
    cancelled:*) finish cancelled . ;;
    *:65) finish failed '. + {error_message: $err, error_code: "exit 65", retryable: false}' ;;
    *:124) finish failed '. + {error_message: $err, error_code: "Timeout"}' ;;
    *) finish failed ". + {error_message: \$err, error_code: \"exit $code\"}" ;;
    esac
}

# finish OUTCOME FILTER: the outcome of the claim, with what the filter adds to it.
finish() {
    about "{worker_id, outcomes: [{task_id: $id, token, outcome: \"$1\"} | $2]}" >"$work/finish.body"
    post finish /api/tasks/finish
    case $1:$(field finish '.answers[0].code // .code') in
    completed:invalid_value | completed:bad_request | completed:too_large)
        finish failed '. + {error_message: "The result cannot be stored.", retryable: false}'
        ;;
    *:null) say "task $id (token $token) $1" ;;
    *) say "task $id (token $token) is lost: $(field finish '.answers[0].error // .error')" ;;
    esac
}

# about FILTER: JSON about the claim; $out and $err are what the command printed.
about() {
    tail -c 4000 "$work/err" >"$work/err.end"
    jq -nc --arg worker "$worker" --argjson token "$token" --argjson lease "$lease" --rawfile out "$work/out" \
        --rawfile err "$work/err.end" "(\$out | rtrimstr(\"\\n\")) as \$out | (\$err | rtrimstr(\"\\n\")) as \$err
        | {worker_id: \$worker, token: \$token} | $1"
}

# post NAME PATH [or_stop]: send NAME.body until there is an answer; then it is in NAME.answer, and its status in
# $status. With or_stop a signal ends it, without an answer.
post() {
    failures=0
    while :; do
        curl -sS --max-time $((wait + 15)) -H "@$work/headers" --data-binary "@$work/$1.body" -D "$work/$1.headers" \
            -o "$work/$1.answer" -w '%{http_code}' "$url$2" >"$work/$1.status" &
        sent=$!
        until wait "$sent" || ! kill -0 "$sent" 2>/dev/null; do
            if [ "$stopping" -gt 0 ] && [ "${3-}" = or_stop ]; then
                kill "$sent"
                return 1
            fi
        done
        status=$(cat "$work/$1.status")
        case $status in 000 | 408 | 429 | 5??) ;; *) return 0 ;; esac
        [ "$stopping" = 0 ] || [ "${3-}" != or_stop ] || return 1
        failures=$((failures + 1))
        seconds=$(rest "$1")
        say "$2: status $status; again in $seconds s"
        sleep "$seconds"
    done
}

# Longer each time, never all workers at the same moment, never less than the server asks for.
rest() {
    asked=$(sed -n 's/^[Rr]etry-[Aa]fter: *\([0-9]*\).*/\1/p' "$work/$1.headers" 2>/dev/null)
    awk -v failures="$failures" -v asked="${asked:-0}" -v dice="$(random 2 u2)" 'BEGIN {
        grown = failures > 7 ? 10 : 0.1 * 2 ^ (failures - 1)
        printf "%.2f\n", asked + grown * (0.5 + dice / 131072)
    }'
}

field() { jq -r "$2" "$work/$1.answer"; }
random() { od -An -N "$1" -t "$2" /dev/urandom | tr -d ' \n'; }
say() { echo "$worker: $*" >&2; }

fatal() {
    say "the server refuses: $(cat "$work/claim.answer")"
    exit 1
}

main "$@"
