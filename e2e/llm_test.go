package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
)

// Guarantee: examples/llm runs from beginning to end. A team is refused when less than the reserve is left of its budget; each
// call costs what the usage in its response says, one whose caller hung up costs the maximum, and the quota and the usage
// records have counted the same. The keys are not shown.
func TestExampleLLM(t *testing.T) {
	t.Parallel()
	sources, err := filepath.Glob("../examples/llm/*.go")
	if err != nil || len(sources) == 0 {
		t.Fatalf("found no example: %v", err)
	}
	for _, path := range sources { // so that a change of the example invalidates a cached result
		if _, err := os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(t.TempDir(), "llm")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "github.com/keygate/keygate/examples/llm")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	var out string
	for month := time.January - 1; time.Now().UTC().Month() != month; { // again if the quotas began anew meanwhile
		month = time.Now().UTC().Month()
		out = runExample(t, program)
	}
	for want, times := range map[string]int{
		"search called the model small, streamed: 200\n":                              7,
		"search called the model small, streamed: 429\n":                              1,
		`"code":"rate_limit_exceeded"`:                                                1,
		"support called the model small, whole: 200\n":                                1,
		"support called the model large, streamed: 200\n":                             1,
		"support called the model small, streamed, hung up after the first word: 200": 1,
		" 112 tokens ":                    8,
		" 560 tokens ":                    1,
		" 4000 tokens (incomplete) ":      1,
		"Bills for hours that are over: ": 1,
	} {
		if got := strings.Count(out, want); got != times {
			t.Errorf("got %q %d times, want %d", want, got, times)
		}
	}
	for _, want := range []string{`(?m)^free\.per-month +784 +1000 `, `(?m)^pro\.per-month +4672 +1000000 `} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("got no quota that matches %s", want)
		}
	}
	records := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m) (search|support) .* tokens +(\d+) +\d+ +open `).FindAllStringSubmatch(out, -1) {
		units, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		records[m[1]] += units // of one hour, or of two
	}
	if records["search"] != 784 || records["support"] != 4672 {
		t.Errorf("got usage records of %v, want the units of the quotas", records)
	}
	if regexp.MustCompile(`kg_[0-9A-Za-z]{20}`).MatchString(out) || strings.Contains(out, "sk-of-the-provider") {
		t.Error("the output has a key")
	}
	if t.Failed() {
		t.Log(out)
	}
}

// runExample runs the example, and returns its output.
func runExample(t *testing.T, program string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), awaittest.Timeout)
	defer cancel()
	run := exec.CommandContext(ctx, program, "-keygate", binary, "-once")
	run.Dir = ".."
	run.Env = append(os.Environ(), "KEYGATE_API_KEY=of-another-server", "TMPDIR="+t.TempDir(), "KEYGATE_GATEWAY_ADDR="+porttest.Reserve(t),
		"KEYGATE_ADMIN_ADDR="+porttest.Reserve(t), "KEYGATE_OPS_ADDR="+porttest.Reserve(t))
	run.Cancel = func() error { return run.Process.Signal(os.Interrupt) } // so that it ends its server
	run.WaitDelay = 30 * time.Second
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}
