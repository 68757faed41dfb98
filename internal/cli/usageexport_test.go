package cli_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// usageServer is a server with usage records, which it exports as the real one does. A cursor is the filters and the number
// of records before it.
type usageServer struct {
	t       *testing.T
	env     map[string]string
	records []string
	breaks  bool                         // break off in the middle of a line
	meddle  func()                       // called before a response ends
	without bool                         // send no cursor
	filters func(r *http.Request) string // that a cursor belongs to
	queries []string
}

func newUsageServer(t *testing.T) *usageServer {
	t.Helper()
	u := &usageServer{t: t, meddle: func() {}, filters: func(r *http.Request) string {
		q := r.URL.Query()
		q.Del("cursor")
		q.Del("format")
		return q.Encode()
	}}
	s := httptest.NewServer(u)
	t.Cleanup(s.Close)
	u.env = map[string]string{"KEYGATE_URL": s.URL, "KEYGATE_API_KEY": "kga_" + strings.Repeat("A", 38)}
	return u
}

func (u *usageServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.queries = append(u.queries, r.URL.RawQuery)
	from := 0
	if cursor := r.URL.Query().Get("cursor"); cursor != "" {
		number, filters, _ := strings.Cut(cursor, "~")
		n, err := strconv.Atoi(number)
		if err != nil || filters != strings.ReplaceAll(u.filters(r), "&", "+") {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, `{"error":"validation_failed","message":"is not a cursor of this list","field":"cursor","request_id":"req_1"}`)
			return
		}
		from = n
	}
	if !u.without {
		w.Header().Set("X-Keygate-Cursor", fmt.Sprintf("%d~%s", len(u.records), strings.ReplaceAll(u.filters(r), "&", "+")))
	}
	if r.URL.Query().Get("format") == "csv" {
		_, _ = io.WriteString(w, "usage_id,sequence\n")
	}
	for _, record := range u.records[from:] {
		_, _ = io.WriteString(w, record+"\n")
	}
	if u.breaks {
		_, _ = io.WriteString(w, `{"usage_id":"half`)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	u.meddle()
}

// export runs usage export.
func (u *usageServer) export(args ...string) (status int, out, errOut string) {
	u.t.Helper()
	return runWith(u.t, u.env, append([]string{"usage", "export"}, args...)...)
}

// want checks the result of an export to standard output.
func (u *usageServer) want(wantOut string, args ...string) {
	u.t.Helper()
	if status, out, errOut := u.export(args...); status != 0 || out != wantOut {
		u.t.Errorf("%q: got status %d and %q\n%swant 0 and %q", args, status, out, errOut, wantOut)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// absent checks that there is no file.
func absent(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); err == nil {
		t.Errorf("%s exists", path)
	}
}

// Guarantee: with a cursor file, each complete export has the records that those before it lacked, and nothing else. The
// file is replaced by one that only its owner may read.
func TestUsageExportsWithACursorFile(t *testing.T) {
	u := newUsageServer(t)
	cursor := filepath.Join(t.TempDir(), "cursor")
	u.records = []string{"one", "two"}
	u.want("one\ntwo\n", "--cursor-file", cursor)
	u.want("", "--cursor-file", cursor)
	u.records = append(u.records, "three")
	u.want("three\n", "--cursor-file", cursor)
	u.want("", "--cursor-file", cursor, "--format", "cloudevents")
	u.want("usage_id,sequence\n", "--cursor-file", cursor, "--format", "csv")
	u.want("one\ntwo\nthree\n") // without the file
	info, err := os.Stat(cursor)
	if err != nil || info.Mode().Perm()&0o077 != 0 && os.PathSeparator == '/' {
		t.Errorf("got mode %v (error %v), want 0600", info.Mode(), err)
	}
	file := filepath.Join(t.TempDir(), "batch")
	u.records = append(u.records, "four")
	if status, out, errOut := u.export("--cursor-file", cursor, "--file", file); status != 0 || out != "" || readFile(t, file) != "four\n" {
		t.Errorf("got status %d, %q and %q\n%s", status, out, readFile(t, file), errOut)
	}
	u.want("", "--cursor-file", cursor)
	absent(t, file+".part")
	absent(t, cursor+".part")
}

// Guarantee: a list with a cursor file has the records that the lists and exports before it with the file lacked. One that
// breaks off, or whose output is refused, shows nothing and leaves the file as it was.
func TestUsageListsWithACursorFile(t *testing.T) {
	u := newUsageServer(t)
	cursor := filepath.Join(t.TempDir(), "cursor")
	entry := func(id string) string {
		return `{"usage_id":"` + id + `","sequence":1,"period_start":"2026-03-01T12:00:00Z","period_end":"2026-03-01T13:00:00Z","meter":"requests","units":1,"requests":1,"state":"final"}`
	}
	list := func(want int, wantOut string, args ...string) {
		t.Helper()
		if status, out, errOut := runWith(t, u.env, append([]string{"usage", "list", "-o", "id", "--cursor-file", cursor}, args...)...); status != want || out != wantOut {
			t.Errorf("%q: got status %d and %q\n%swant %d and %q", args, status, out, errOut, want, wantOut)
		}
	}
	u.records = []string{entry("one"), entry("two")}
	list(2, "", "--limit", "1")
	list(2, "", "--state", "open")
	list(2, "", "--since", "24h")
	absent(t, cursor)
	list(0, "one\ntwo\n")
	list(0, "")
	u.records = append(u.records, entry("three"))
	before := readFile(t, cursor)
	u.breaks = true
	list(7, "")
	if u.breaks = false; readFile(t, cursor) != before {
		t.Error("a list that broke off replaced the cursor")
	}
	list(6, "", "--meter", "requests")
	list(0, "three\n")
	u.records = append(u.records, entry("four"))
	u.want(entry("four")+"\n", "--cursor-file", cursor)
	list(0, "")
}

// Guarantee: an export that breaks off leaves the cursor file as it was, whether there was one or not, and no file with
// output. Repeated, it loses nothing.
func TestBrokenUsageExportKeepsTheCursor(t *testing.T) {
	u := newUsageServer(t)
	dir := t.TempDir()
	cursor, file := filepath.Join(dir, "cursor"), filepath.Join(dir, "batch")
	u.records, u.breaks = []string{"one"}, true
	status, out, errOut := u.export("--cursor-file", cursor)
	if status == 0 || out != "one\n" || !strings.Contains(errOut, "broke off") || !strings.Contains(errOut, "discard its output, and repeat it") {
		t.Errorf("got status %d, %q and\n%s", status, out, errOut)
	}
	absent(t, cursor)
	u.breaks = false
	u.want("one\n", "--cursor-file", cursor)
	before := readFile(t, cursor)

	u.records, u.breaks = append(u.records, "two"), true
	if status, _, errOut := u.export("--cursor-file", cursor, "--file", file); status == 0 || !strings.Contains(errOut, "broke off") {
		t.Errorf("got status %d and\n%s", status, errOut)
	}
	absent(t, file)
	absent(t, file+".part")
	if got := readFile(t, cursor); got != before {
		t.Errorf("got the cursor %q, want still %q", got, before)
	}
	u.breaks = false
	u.want("two\n", "--cursor-file", cursor)
}

// Guarantee: output is complete before the cursor is replaced. An export that fails between the two is repeated by the next.
func TestUsageExportFailsBeforeTheCursor(t *testing.T) {
	u := newUsageServer(t)
	dir := t.TempDir()
	cursor, file := filepath.Join(dir, "cursor"), filepath.Join(dir, "batch")
	u.records = []string{"one"}
	inTheWay := filepath.Join(cursor+".part", "x")
	u.meddle = func() { // the new cursor cannot be written
		if err := os.MkdirAll(inTheWay, 0o700); err != nil {
			t.Error(err)
		}
	}
	status, _, errOut := u.export("--cursor-file", cursor, "--file", file)
	if status != 1 || !strings.Contains(errOut, "The output is complete, but "+cursor+" was not replaced") || readFile(t, file) != "one\n" {
		t.Errorf("got status %d, %q and\n%s", status, readFile(t, file), errOut)
	}
	absent(t, cursor)
	u.meddle = func() {}
	if err := os.RemoveAll(cursor + ".part"); err != nil {
		t.Fatal(err)
	}
	// What an export that was killed has left does not matter.
	for _, left := range []string{cursor + ".part", file + ".part"} {
		if err := os.WriteFile(left, []byte("left"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if status, _, errOut := u.export("--cursor-file", cursor, "--file", file); status != 0 || readFile(t, file) != "one\n" {
		t.Errorf("got status %d and\n%s", status, errOut)
	}
	u.want("", "--cursor-file", cursor)
}

// Guarantee: output that cannot be written leaves the cursor as it was.
func TestUsageExportThatCannotBeWritten(t *testing.T) {
	u := newUsageServer(t)
	dir := t.TempDir()
	cursor, file := filepath.Join(dir, "cursor"), filepath.Join(dir, "batch")
	u.records = []string{"one"}
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, _, errOut := u.export("--cursor-file", cursor, "--file", file); status != 1 || !strings.Contains(errOut, "exists") || len(u.queries) != 0 {
		t.Errorf("a file that exists: got status %d, %d calls and\n%s", status, len(u.queries), errOut)
	}
	other := filepath.Join(dir, "other")
	u.meddle = func() { // another program is faster
		if err := os.WriteFile(other, []byte("mine"), 0o600); err != nil {
			t.Error(err)
		}
	}
	if status, _, errOut := u.export("--cursor-file", cursor, "--file", other); status != 1 || !strings.Contains(errOut, "exists") || readFile(t, other) != "mine" {
		t.Errorf("a file that another program made: got status %d and\n%s", status, errOut)
	}
	absent(t, cursor)
}

// Guarantee: a cursor of other filters is refused with a message that names the file and says what to do.
func TestUsageExportWithOtherFilters(t *testing.T) {
	u := newUsageServer(t)
	cursor := filepath.Join(t.TempDir(), "cursor")
	u.records = []string{"one"}
	u.want("one\n", "--cursor-file", cursor, "--meter", "requests", "--since", "2026-03-01")
	before := readFile(t, cursor)
	status, out, errOut := u.export("--cursor-file", cursor, "--meter", "bytes_out", "--since", "2026-03-01")
	if status != 6 || out != "" || !strings.Contains(errOut, "the cursor in "+cursor) || !strings.Contains(errOut, "give the filters") || !strings.Contains(errOut, "name another file") {
		t.Errorf("got status %d, %q and\n%s", status, out, errOut)
	}
	if got := readFile(t, cursor); got != before {
		t.Errorf("got the cursor %q, want still %q", got, before)
	}
	u.want("", "--cursor-file", cursor, "--meter", "requests", "--since", "2026-03-01")
}

// Guarantee: a response without a cursor writes nothing with a cursor file, and never replaces the file.
func TestUsageExportWithoutACursor(t *testing.T) {
	u := newUsageServer(t)
	cursor := filepath.Join(t.TempDir(), "cursor")
	u.records, u.without = []string{"one"}, true
	if status, out, errOut := u.export("--cursor-file", cursor); status != 1 || out != "" || !strings.Contains(errOut, "X-Keygate-Cursor") {
		t.Errorf("got status %d, %q and\n%s", status, out, errOut)
	}
	absent(t, cursor)
	u.want("one\n")
}

// Guarantee: a file that holds no cursor is refused before a call, and stays as it is.
func TestUsageExportWithAWrongCursorFile(t *testing.T) {
	u := newUsageServer(t)
	for _, content := range []string{"", "\n", "a b", "a\nb\n", strings.Repeat("a", 5000), "\x00"} {
		cursor := filepath.Join(t.TempDir(), "cursor")
		if err := os.WriteFile(cursor, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		status, _, errOut := u.export("--cursor-file", cursor)
		if status != 1 || !strings.Contains(errOut, cursor+" does not hold a cursor: remove it") || readFile(t, cursor) != content {
			t.Errorf("%.9q: got status %d and\n%s", content, status, errOut)
		}
	}
	if len(u.queries) != 0 {
		t.Errorf("got %d calls, want none", len(u.queries))
	}
}

// Guarantee: two exports never use a cursor file at the same time.
func TestUsageExportsExcludeEachOther(t *testing.T) {
	u := newUsageServer(t)
	cursor := filepath.Join(t.TempDir(), "cursor")
	u.records = []string{"one"}
	u.meddle = func() { // while the first runs
		u.meddle = func() {}
		if status, out, errOut := u.export("--cursor-file", cursor); status != 1 || out != "" || !strings.Contains(errOut, "another command uses "+cursor) {
			t.Errorf("got status %d, %q and\n%s", status, out, errOut)
		}
	}
	u.want("one\n", "--cursor-file", cursor)
	if len(u.queries) != 1 {
		t.Errorf("got %d calls, want 1", len(u.queries))
	}
}

// Guarantee: wrong usage is found before a call, and says what to do.
func TestWrongUsageOfUsageExports(t *testing.T) {
	u := newUsageServer(t)
	cursor := filepath.Join(t.TempDir(), "cursor")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--format", "xml"}, `--format must be jsonl, csv or cloudevents, not "xml"`},
		{[]string{"-o", "json"}, "use --format"},
		{[]string{"--jq", "."}, "--jq cannot be used"},
		{[]string{"--since", "x"}, "not a valid time"},
		{[]string{"--owner", ""}, "--owner is empty"},
		{[]string{"--cursor-file", ""}, "--cursor-file is empty"},
		{[]string{"--cursor-file", cursor, "--file", cursor}, "must be two files"},
		{[]string{"--cursor-file", cursor, "--since", "24h"}, "--since must be a time or a date"},
		{[]string{"--cursor-file", cursor, "--until", "1h"}, "--until must be a time or a date"},
		{[]string{"--cursor-file", cursor, "--state", "open"}, "open records change"},
		{[]string{"x"}, "does not take the argument"},
	} {
		status, out, errOut := u.export(tc.args...)
		if status != 2 || out != "" || !strings.Contains(strings.Join(strings.Fields(errOut), " "), tc.want) {
			t.Errorf("%q: got status %d, %q and\n%s\nwant 2 and %q", tc.args, status, out, errOut, tc.want)
		}
	}
	absent(t, cursor)
	absent(t, cursor+".lock")
	if len(u.queries) != 0 {
		t.Errorf("got %d calls, want none", len(u.queries))
	}
}
