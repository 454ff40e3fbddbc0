#!/bin/sh
# The jobs of test_examples.py, as a command of the shell worker. Says which task it is by DIBS_TASK_ID, DIBS_TOKEN.
params=$(cat)
folder=$(printf %s "$params" | jq -r '.folder // ""')
began=$folder/$DIBS_TASK_ID.$DIBS_TOKEN.began
case $(printf %s "$params" | jq -r .do) in
say) printf %s "$params" | jq -c '{said: .word}' ;;
break) echo broken >&2 && exit 3 ;;
give_up) echo 'no use' >&2 && exit 65 ;;
nest) awk 'BEGIN { for (n = 0; n < 70; n++) { left = left "["; right = right "]" } print left right }' ;;
hold) # goes on until it is let go, whatever anybody says
    trap '' TERM
    : >"$began"
    while [ -d "$folder" ] && [ ! -e "$folder/go" ]; do sleep 0.05; done
    echo '{"held": true}'
    ;;
listen) # goes on until it is asked to stop
    : >"$began"
    exec sleep 60
    ;;
esac
