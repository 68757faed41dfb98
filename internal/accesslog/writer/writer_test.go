package writer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/keygatetest/logtest"
)

func newWriter(t *testing.T, cfg Config) *Writer {
	t.Helper()
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// numbered returns entries whose paths are numbers from first on.
func numbered(first, n int) (batch []accesslog.Entry) {
	for i := range n {
		batch = append(batch, accesslog.Entry{Path: fmt.Sprintf("/%d", first+i)})
	}
	return batch
}

// Guarantee: a line has the documented fields in their order, and null for what a request
// does not have. A key in a path is redacted, and any bytes of a path make a valid line.
func TestLine(t *testing.T) {
	key := strings.NewReader(strings.Repeat("k", 64))
	secret, err := apikey.Generate(apikey.GatewayLevel, key)
	if err != nil {
		t.Fatal(err)
	}
	e := accesslog.Entry{
		Record: accesslog.Record{
			Start: time.Date(2027, 3, 1, 18, 36, 47, 929103000, time.UTC).UnixMicro(), Duration: 12_410_000, Upstream: 11_902_999,
			BytesIn: 3, BytesOut: 512, Request: [16]byte{1}, Gateway: [16]byte{2}, Route: [16]byte{3}, Key: [16]byte{4},
			Client: netip.MustParseAddr("203.0.113.7").As16(), Status: 200, Method: accesslog.GET, Major: 1, Minor: 1,
		},
		Path: "/orders/" + secret + "/\"\\\xff\n\u009b", Owner: "customer-42",
		Cost:         costs(accesslog.Cost{Meter: "tokens", Units: 1204, Reserved: 2000, Read: "total_tokens 1,204 × 1"}, accesslog.Cost{Meter: "cents", Reserved: 1, Unknown: "missing"}),
		UpstreamName: "default", SideReason: "5 % of callers, by the key", Target: "10.0.0.2:8443",
		AttemptList: attempts(accesslog.Attempt{Target: "10.0.0.1:8443", Result: "connect", Reason: accesslog.ConnectionRefused, Took: 310 * time.Microsecond}, accesslog.Attempt{Target: "10.0.0.2:8443", Result: "ok", Status: 200, Took: 4 * time.Millisecond}),
	}
	want := `{"time":"2027-03-01T18:36:47.929103Z","request_id":"req_01000000000000000000000000","gateway_id":"gw_02000000000000000000000000",` +
		`"route_id":"rt_03000000000000000000000000","key_id":"key_04000000000000000000000000","owner":"customer-42","method":"GET",` +
		`"path":"/orders/` + secret[:9] + `***/\"\\` + "\ufffd" + `\u000a\u009b","status":200,"bytes_in":3,"bytes_out":512,"duration_ms":12.41,"upstream_ms":11.902,` +
		`"client_ip":"203.0.113.7","protocol":"HTTP/1.1","cost":{"tokens":{"units":1204,"reserved":2000,"unknown":null},"cents":{"units":0,"reserved":1,"unknown":"missing"}},` +
		`"upstream":"default","target":"10.0.0.2:8443","attempts":[{"target":"10.0.0.1:8443","result":"connect","reason":"connection_refused","status":null,"duration_ms":0.31},` +
		`{"target":"10.0.0.2:8443","result":"ok","reason":null,"status":200,"duration_ms":4}],"side":"default"}` + "\n"
	got := string(appendLine(nil, &e))
	if withoutIDs(t, got) != withoutIDs(t, want) || !json.Valid([]byte(got)) {
		t.Errorf("got %s\nwant %s", got, want)
	}
	empty := accesslog.Entry{Record: accesslog.Record{Status: 404, Upstream: -1, Major: 2}}
	want = `{"time":"1970-01-01T00:00:00.000000Z","request_id":null,"gateway_id":null,"route_id":null,"key_id":null,"owner":null,"method":null,` +
		`"path":null,"status":404,"bytes_in":0,"bytes_out":0,"duration_ms":0,"upstream_ms":null,"client_ip":null,"protocol":"HTTP/2.0","cost":null,"upstream":null,"target":null,"attempts":null,"side":null}` + "\n"
	if got := string(appendLine(nil, &empty)); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// costs returns the text of costs.
func costs(all ...accesslog.Cost) string {
	var b []byte
	for i := range all {
		b = accesslog.AppendCost(b, &all[i])
	}
	return string(b)
}

// attempts returns the text of attempts.
func attempts(all ...accesslog.Attempt) string {
	var b []byte
	for i := range all {
		b = accesslog.AppendAttempt(b, &all[i])
	}
	return string(b)
}

// withoutIDs cuts identifiers after their prefixes.
func withoutIDs(t *testing.T, line string) string {
	t.Helper()
	for _, prefix := range []string{`"req_`, `"gw_`, `"rt_`, `"key_`} {
		i := strings.Index(line, prefix)
		if i < 0 || len(line) < i+len(prefix)+26 {
			t.Fatalf("got %s, want an identifier that begins with %s", line, prefix)
		}
		line = line[:i+len(prefix)] + line[i+len(prefix)+26:]
	}
	return line
}

// Guarantee: a file is rotated at its size. Five predecessors are kept, all with mode 0600. Until
// its file is removed, no line is lost, and none is written twice.
func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	w := newWriter(t, Config{Path: path, MaxSize: 2000})
	const lines = 100
	for i := range lines {
		w.Take(numbered(i, 1))
		w.flush()
	}
	if err := w.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := lines
	for _, name := range []string{path, path + ".1", path + ".2", path + ".3", path + ".4", path + ".5"} {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if info, _ := os.Stat(name); info.Mode().Perm() != 0o600 || info.Size() > 2000 || info.Size() == 0 {
			t.Errorf("%s has mode %o and %d bytes, want 600 and 1 to 2000 bytes", name, info.Mode().Perm(), info.Size())
		}
		all := strings.SplitAfter(strings.TrimSpace(string(content)), "\n")
		next -= len(all)
		for i, line := range all {
			if want := fmt.Sprintf(`"path":"/%d"`, next+i); !strings.Contains(line, want) {
				t.Fatalf("%s, line %d: got %s, want %s", name, i+1, line, want)
			}
		}
	}
	if _, err := os.Stat(path + ".6"); err == nil || w.Lost() != 0 {
		t.Errorf("a sixth file: error %v, want that it does not exist; %d lines lost, want 0", err, w.Lost())
	}
}

// Guarantee: a file that another program moves away or removes is replaced by a new one, and
// an existing file is continued.
func TestMovedFileIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(path, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWriter(t, Config{Path: path})
	w.Take(numbered(1, 1))
	w.flush()
	if err := os.Rename(path, path+".moved"); err != nil {
		t.Fatal(err)
	}
	w.Take(numbered(2, 1))
	if err := w.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{path: `"/2"`, path + ".moved": "{}\n{"} {
		if content, err := os.ReadFile(name); err != nil || !strings.Contains(string(content), want) {
			t.Errorf("%s: got %q, error %v; want %s", name, content, err, want)
		}
	}
}

// Guarantee: an output that cannot be written to is an error of New.
func TestUnwritableOutput(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "none", "access.log"), "/dev/null"} {
		if _, err := New(Config{Path: path}); err == nil {
			t.Errorf("%s: got no error, want one", path)
		}
	}
}

// pipe is an output that blocks until it is opened.
type pipe struct {
	open chan struct{}
	bytes.Buffer
}

func (p *pipe) Write(b []byte) (int, error) {
	<-p.open
	return p.Buffer.Write(b)
}

// Guarantee: while the output is blocked, Take does not wait and memory is bounded. The lines
// that are lost are counted, and logged once. Later lines are written again.
func TestBlockedOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out := &logtest.Recorder{}, &pipe{open: make(chan struct{})}
		w := newWriter(t, Config{Stdout: out, MaxHeld: 1000, Log: slog.New(slog.NewTextHandler(log, nil))})
		if err := w.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		const lines = 100
		w.Take(numbered(0, 1))
		synctest.Wait()
		for i := 1; i < lines; i++ {
			w.Take(numbered(i, 1))
			time.Sleep(100 * time.Millisecond) //nolint:forbidigo // the clock of the bubble
		}
		if len(w.held) > 1500 {
			t.Errorf("%d bytes wait, want at most about 1000", len(w.held))
		}
		close(out.open)
		time.Sleep(3 * time.Second) //nolint:forbidigo // the clock of the bubble
		w.Take(numbered(lines, 1))
		if err := w.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		written := strings.Count(out.String(), "\n")
		if w.Lost() == 0 || uint64(written)+w.Lost() != lines+1 || !strings.Contains(out.String(), `"/100"`) {
			t.Errorf("%d lines written and %d lost, want %d in all, and the last one written", written, w.Lost(), lines+1)
		}
		if log.Count("are being lost") != 1 || log.Count("is written again") != 1 {
			t.Errorf("got the log %s, want one line for the begin of the loss and one for its end", log)
		}
	})
}

// Guarantee: a shutdown does not wait for a blocked output for more than two seconds.
func TestStopWithBlockedOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &pipe{open: make(chan struct{})}
		w := newWriter(t, Config{Stdout: out})
		if err := w.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.Take(numbered(0, 1))
		synctest.Wait()
		w.Take(numbered(1, 2))
		if err := w.Stop(t.Context()); err == nil || w.Lost() != 2 {
			t.Errorf("got error %v and %d lines lost, want an error and 2", err, w.Lost())
		}
		close(out.open)
	})
}

// full is an output that accepts only the first bytes.
type full struct {
	room int
	bytes.Buffer
}

func (f *full) Write(b []byte) (int, error) {
	n, _ := f.Buffer.Write(b[:min(len(b), f.room)])
	if f.room -= n; n < len(b) {
		return n, errors.New("no space left on device")
	}
	return n, nil
}

// Guarantee: if the output accepts only a part, lines that it has not accepted as a whole are lost,
// and later output begins on a new line.
func TestFullOutput(t *testing.T) {
	out := &full{room: 700}
	w := newWriter(t, Config{Stdout: out})
	w.Take(numbered(0, 10))
	w.flush()
	whole := strings.Count(out.String(), "\n")
	if w.Lost() != uint64(10-whole) || whole == 0 {
		t.Errorf("%d lines lost, want %d", w.Lost(), 10-whole)
	}
	out.room = 1 << 20
	w.Take(numbered(10, 1))
	w.flush()
	lines := strings.Split(out.String(), "\n")
	if last := lines[len(lines)-2]; !json.Valid([]byte(last)) || !strings.Contains(last, `"/10"`) {
		t.Errorf("got the last line %s, want a whole one", last)
	}
}
