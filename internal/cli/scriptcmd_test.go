package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func itoa(n int) string { return strconv.Itoa(n) }

// scriptTB lets what starts servers for tests do so for one script. What they log
// goes to the test's log: a script's own is written to by its goroutine alone.
type scriptTB struct {
	testing.TB
	ts *testscript.TestScript
}

func (tb scriptTB) TempDir() string                   { return tb.ts.Getenv("WORK") }
func (tb scriptTB) Cleanup(f func())                  { tb.ts.Defer(f) }
func (tb scriptTB) Helper()                           {}
func (tb scriptTB) Fatal(args ...any)                 { tb.ts.Fatalf("%s", fmt.Sprint(args...)) }
func (tb scriptTB) Fatalf(format string, args ...any) { tb.ts.Fatalf(format, args...) }

// exits runs a command as exec does, with its streams for stdout and stderr,
// and holds its exit status to the first argument.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("%s: exit status %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

// capture sets a variable to the last standard output.
func capture(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// get makes a request of the data plane.
func get(ts *testscript.TestScript, _ bool, args []string) {
	req, err := http.NewRequest(http.MethodGet, args[0], http.NoBody)
	ts.Check(err)
	if len(args) > 1 {
		req.Header.Set("Authorization", "Bearer "+args[1])
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	ts.Check(err)
	defer res.Body.Close()
	var b bytes.Buffer
	_, err = io.Copy(&b, res.Body)
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "%d %s\n", res.StatusCode, &b)
}

// jq prints one member of an object in a file, of an array's first object, or the
// length of an array, so that scripts need no other program.
func jq(ts *testscript.TestScript, _ bool, args []string) {
	var v any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &v))
	if member, ok := strings.CutPrefix(args[1], "."); ok {
		if array, ok := v.([]any); ok && len(array) > 0 {
			v = array[0]
		}
		object, _ := v.(map[string]any)
		value, found := object[member]
		if !found {
			ts.Fatalf("no member %s in %s", member, args[0])
		}
		fmt.Fprintln(ts.Stdout(), value)
		return
	}
	array, ok := v.([]any)
	if !ok {
		ts.Fatalf("%s holds no array", args[0])
	}
	fmt.Fprintln(ts.Stdout(), len(array))
}

// waitfor runs a command until its exit status is the first argument.
func waitfor(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-tick.C {
		err := ts.Exec(args[1], args[2:]...)
		var exit *exec.ExitError
		if got := errors.As(err, &exit); got && exit.ExitCode() == want || err == nil && want == 0 {
			return
		}
	}
	ts.Fatalf("%s: never the exit status %d", strings.Join(args[1:], " "), want)
}

// eventually runs a command until its standard output matches the first
// argument.
func eventually(ts *testscript.TestScript, _ bool, args []string) {
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-tick.C {
		if ts.Exec(args[1], args[2:]...) == nil && want.MatchString(ts.ReadFile("stdout")) {
			return
		}
	}
	ts.Fatalf("%s: never %s\n%s", strings.Join(args[1:], " "), args[0], ts.ReadFile("stdout"))
}

// sameHour waits until the hour has a minute left, for what reports add up by it.
func sameHour(ts *testscript.TestScript, _ bool, _ []string) {
	now := time.Now()
	if left := now.Truncate(time.Hour).Add(time.Hour).Sub(now); left < time.Minute {
		ts.Logf("waiting %v for the next hour", left)
		<-time.After(left)
	}
}

// firstid prints the first identifier with a prefix in the last standard output.
func firstid(ts *testscript.TestScript, _ bool, args []string) {
	id := regexp.MustCompile(args[0] + "[0-9a-z]{26}").FindString(ts.ReadFile("stdout"))
	if id == "" {
		ts.Fatalf("no identifier %s…", args[0])
	}
	fmt.Fprintln(ts.Stdout(), id)
}
