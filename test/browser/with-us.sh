#!/bin/sh
# Runs $PROGRAM with these arguments until it ends, or until whoever started this is gone, however that came about: a process that is
# killed cannot stop its browsers any more, but the pipe to their input closes. Start it in a process group of its own
# (`detached: true`), with a pipe for its input: all of the group is killed.
exec 9<&0
{
  cat <&9
  kill -KILL 0
} >/dev/null 2>&1 &
exec "$PROGRAM" "$@" 9<&- </dev/null
