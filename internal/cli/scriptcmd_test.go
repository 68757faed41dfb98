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

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

func itoa(n int) string { return strconv.Itoa(n) }

// scriptTB is the testing.TB of one script, for helpers that start servers. Their log
// goes to the log of the test, since only the script's goroutine may write to its own.
type scriptTB struct {
	testing.TB
	ts *testscript.TestScript
}

func (tb scriptTB) TempDir() string                   { return tb.ts.Getenv("WORK") }
func (tb scriptTB) Cleanup(f func())                  { tb.ts.Defer(f) }
func (tb scriptTB) Helper()                           {}
func (tb scriptTB) Fatal(args ...any)                 { tb.ts.Fatalf("%s", fmt.Sprint(args...)) }
func (tb scriptTB) Fatalf(format string, args ...any) { tb.ts.Fatalf(format, args...) }

// exits runs a command like exec and checks that its exit status is the first argument.
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

// quiet fails if the last command has written to standard error, except that it waits for the server, which it says on a
// machine that is busy.
func quiet(ts *testscript.TestScript, _ bool, _ []string) {
	for line := range strings.Lines(ts.ReadFile("stderr")) {
		if !strings.HasPrefix(line, "Waiting for the server") {
			ts.Fatalf("standard error has %q, want nothing", line)
		}
	}
}

// capture sets a variable to the trimmed standard output of the last command.
func capture(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// get makes a GET request and prints the status and body of the response.
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

// jq prints a field of the object in a file, or of the first object of an array, or the
// length of an array. With it scripts do not need the program jq.
func jq(ts *testscript.TestScript, _ bool, args []string) {
	var v any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &v))
	if field, ok := strings.CutPrefix(args[1], "."); ok {
		if array, ok := v.([]any); ok && len(array) > 0 {
			v = array[0]
		}
		object, _ := v.(map[string]any)
		value, found := object[field]
		if !found {
			ts.Fatalf("no field %s in %s", field, args[0])
		}
		fmt.Fprintln(ts.Stdout(), value)
		return
	}
	array, ok := v.([]any)
	if !ok {
		ts.Fatalf("%s is not an array", args[0])
	}
	fmt.Fprintln(ts.Stdout(), len(array))
}

// waitfor runs a command until its exit status is the first argument.
func waitfor(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(scriptTimeout); time.Now().Before(deadline); <-tick.C {
		err := ts.Exec(args[1], args[2:]...)
		var exit *exec.ExitError
		if got := errors.As(err, &exit); got && exit.ExitCode() == want || err == nil && want == 0 {
			return
		}
	}
	ts.Fatalf("%s: exit status %d not reached in time", strings.Join(args[1:], " "), want)
}

// eventually runs a command until its standard output matches the first
// argument.
func eventually(ts *testscript.TestScript, _ bool, args []string) {
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(scriptTimeout); time.Now().Before(deadline); <-tick.C {
		if ts.Exec(args[1], args[2:]...) == nil && want.MatchString(ts.ReadFile("stdout")) {
			return
		}
	}
	ts.Fatalf("%s: standard output does not match %s in time:\n%s", strings.Join(args[1:], " "), args[0], ts.ReadFile("stdout"))
}

// sameHour waits until the hour has at least a minute left, for reports by hour.
func sameHour(*testscript.TestScript, bool, []string) { awaittest.Left(time.Hour, time.Minute) }

// firstid prints the first identifier with a prefix in the standard output of the last
// command.
func firstid(ts *testscript.TestScript, _ bool, args []string) {
	id := regexp.MustCompile(args[0] + "[0-9a-z]{26}").FindString(ts.ReadFile("stdout"))
	if id == "" {
		ts.Fatalf("no identifier with the prefix %s", args[0])
	}
	fmt.Fprintln(ts.Stdout(), id)
}
