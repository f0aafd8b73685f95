#!/bin/bash
# tools/gpu_bundle/run-gpu with scripts in its programs' places: every part runs whatever the others do, none outlives its time, and the
# report says of each how it went. The programs themselves run in `tools/dev gpu-bundle --check`.
set -u

bundle=$TEST_TMPDIR/bundle
mkdir -p "$bundle/lib" "$bundle/bin" "$TEST_TMPDIR/path"
cp tools/gpu_bundle/run-gpu "$bundle/run-gpu"
echo "revision 1" >"$bundle/revision"
# Instead of the loader: what is called how, and what the scenario says that it does.
cat >"$bundle/lib/ld-linux-x86-64.so.2" <<'SH'
#!/bin/sh
[ "$1" = --library-path ] && echo "libraries $2" >>"$CALLS" && shift 2
name=$(basename "$1")
shift
echo "$name $*" >>"$CALLS"
case "$SCENARIO $name $*" in
  no_gpu*cuda:0*) echo "troupe: cuda:0 cannot be used: there is none" >&2; exit 3 ;;
  no_gpu*_test*) echo "none of these tests ran: cuda:0 cannot be used"; exit 0 ;;
  trouble*kernels_test*) echo "[  FAILED  ] Some.Test"; exit 1 ;;
  trouble*runtime_test*Golden*) echo "it hangs"; exec sleep 100 ;;
  trouble*Equivalence*) echo "[==========] Running 0 tests from 0 test suites." ;;
  trouble*" --depth 3"* | trouble*gpu_bench*) exit 3 ;;
  *) echo "output of $name" ;;
esac
SH
# It starts what it watches.
cat >"$TEST_TMPDIR/path/compute-sanitizer" <<'SH'
#!/bin/sh
echo "sanitizer $*" >>"$CALLS"
case "$SCENARIO $*" in trouble*memcheck*) sleep 100 & echo $! >"$CALLS.watched"; wait ;; esac
SH
printf '#!/bin/sh\necho "nvidia-smi finds its libraries in $LD_LIBRARY_PATH"\n' >"$TEST_TMPDIR/path/nvidia-smi"
chmod 755 "$bundle/run-gpu" "$bundle/lib/ld-linux-x86-64.so.2" "$TEST_TMPDIR"/path/*

failed=0
wrong() {
  echo "wrong in $SCENARIO: $*"
  failed=1
}
# run SCENARIO STATUS: its report is in $report, what it called in $CALLS.
run() {
  export SCENARIO=$1 CALLS=$TEST_TMPDIR/$1.calls
  report=$TEST_TMPDIR/$1.txt
  : >"$CALLS"
  (cd "$TEST_TMPDIR" && PATH=$TEST_TMPDIR/path:$PATH LD_LIBRARY_PATH=/of/the/machine RUN_GPU_PART_SECONDS=2 TMPDIR=$TEST_TMPDIR "$bundle/run-gpu" "$1.txt" >"$1.out")
  local status=$?
  [ "$status" -eq "$2" ] || wrong "exit status $status, not $2"
  ls -d "$TEST_TMPDIR"/run-gpu.* >/dev/null 2>&1 && wrong "its folder is left"
  summary=$(sed -n '/^== summary/,$p' "$report")
}
says() { printf '%s\n' "$summary" | grep -q "$@" || wrong "the summary does not say: $*"; }
verdicts() { printf '%s\n' "$summary" | grep -c "$1"; }

run well 0
[ "$(verdicts ' passed (')" -eq 19 ] || wrong "not 19 parts passed"
[ "$(grep -c '^sanitizer' "$CALLS")" -eq 2 ] || wrong "the sanitizer did not run twice"
grep -q '^gpu_bench make-model llama-1b' "$CALLS" || wrong "no model was made"
grep -q "^libraries $bundle/lib:/of/the/machine:" "$CALLS" || wrong "the bundle's libraries are not the first ones"
grep -q '^nvidia-smi finds its libraries in /of/the/machine$' "$report" || wrong "nvidia-smi does not find its libraries"

run trouble 1
says '^kernel tests  *FAILED, exit status 1'
says '^golden tests  *did not end within 2 s'
says '^equivalence tests  *FAILED, exit status 0, but no test has that name'
says '^verify, depth 1 against depth 3  *FAILED, exit status 3'
says '^verify, depth 1 against depth 4  *passed'
says '^benchmarks  *FAILED, exit status 3'
says '^compute-sanitizer, memcheck  *did not end within 2 s'
says '^compute-sanitizer, racecheck  *passed'
# Whoever inherits what is left of it may take a moment; by itself it would stay for 100 s.
for _ in $(seq 50); do kill -0 "$(cat "$CALLS.watched")" 2>/dev/null && sleep 0.2; done
kill -0 "$(cat "$CALLS.watched")" 2>/dev/null && wrong "what the sanitizer started is still there"
grep -q '^\[  FAILED  \] Some.Test' "$report" || wrong "what failed is not in the report"
grep -q '^it hangs' "$report" || wrong "what a part that was ended had said is not in the report"

run no_gpu 3
says '^the host device: a model answers  *passed'
[ "$(verdicts ' not run: no GPU (')" -eq 12 ] || wrong "not 12 parts say that there is no GPU"
[ "$(verdicts ' left out: no GPU')" -eq 5 ] || wrong "not 5 parts are left out"
says '^no GPU: troupe: cuda:0 cannot be used: there is none'
grep -q '^gpu_bench\|^sanitizer' "$CALLS" && wrong "something ran in vain"

[ $failed -eq 0 ] || tail -n 60 "$TEST_TMPDIR"/*.txt
exit $failed
