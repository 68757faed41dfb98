package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli"
	"github.com/keygate/keygate/internal/keygatetest"
)

// Guarantee: audit-log --follow shows the latest records and then each that
// comes, once, the oldest first, without its own calls, and ends well when it is
// told to.
func TestFollow(t *testing.T) {
	s := keygatetest.Start(t)
	up := keygatetest.NewUpstream(t)
	g, err := s.Admin.CreateGateway(t.Context(), client.CreateGatewayRequest{Name: "g", UpstreamURL: up.URL})
	if err != nil {
		t.Fatal(err)
	}
	call := func(path string) string {
		t.Helper()
		req, err := http.NewRequest(http.MethodGet, s.GatewayURL()+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.Header.Get("X-Request-Id")
	}
	before := call("/before")

	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	out, in := io.Pipe()
	var problems bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		defer in.Close()
		ended <- cli.Run(ctx, &cli.System{
			In: bytes.NewReader(nil), Out: in, Err: &problems, Version: "test",
			Env: func(name string) (string, bool) {
				v, ok := map[string]string{"KEYGATE_URL": s.AdminURL(), "KEYGATE_API_KEY": s.AdminKey}[name]
				return v, ok
			},
		}, []string{"audit-log", "--follow", "-o", "json"})
	}()
	seen := map[string]int{}
	lines := bufio.NewScanner(out)
	next := func(what string, found func(e *client.AuditEntry) bool) {
		t.Helper()
		for lines.Scan() {
			var e client.AuditEntry
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				t.Fatalf("%v: %s", err, lines.Bytes())
			}
			if e.Path == "/v1/audit-log" {
				t.Errorf("it follows itself: %s", lines.Bytes())
			}
			id := lines.Text()
			if seen[id]++; seen[id] > 1 {
				t.Errorf("twice: %s", lines.Bytes())
			}
			if found(&e) {
				return
			}
		}
		t.Fatalf("it ended before %s was shown: %v, %s", what, lines.Err(), &problems)
	}
	request := func(id string) { t.Helper(); next(id, func(e *client.AuditEntry) bool { return e.RequestID == id }) }
	request(before)
	for _, path := range []string{"/one", "/two", "/three"} {
		request(call(path))
	}
	if _, err := s.Admin.DeleteGateway(t.Context(), g.GatewayID); err != nil {
		t.Fatal(err)
	}
	next("the deletion", func(e *client.AuditEntry) bool {
		return e.AuditAction != nil && e.Action == "gateway.delete" && e.Target == g.GatewayID
	})
	stop()
	go func() { _, _ = io.Copy(io.Discard, out) }()
	if status := <-ended; status != 0 || problems.Len() > 0 {
		t.Errorf("exit status %d, %s", status, &problems)
	}
}
