package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest"
)

// leavingTarget is a target that fails its test if it gets a request that began after its removal was acknowledged.
type leavingTarget struct {
	*httptest.Server
	left atomic.Int64 // the number of the last request that may arrive; 0 while all may
	got  atomic.Int64
}

func startLeavingTarget(t *testing.T) *leavingTarget {
	t.Helper()
	target := &leavingTarget{}
	target.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target.got.Add(1)
		if n, _ := strconv.ParseInt(r.Header.Get("X-Number"), 10, 64); target.left.Load() != 0 && n > target.left.Load() {
			t.Errorf("request %d has reached a target that was taken away after request %d", n, target.left.Load())
		}
		body, _ := io.ReadAll(r.Body) // before the response: over HTTP/1.1 a server of Go does not do both at once
		_, _ = w.Write(body)
	}))
	t.Cleanup(target.Close)
	return target
}

// Guarantee: targets.md, 2 and 6. While targets are added, removed, drained and weighted anew, and the policy changes, every
// request gets its response; and once the call that takes a target away has returned, no request that begins later reaches it.
func TestTargetsChangeUnderLoad(t *testing.T) {
	s := keygatetest.Start(t)
	var targets [4]*leavingTarget
	var listed []string
	for i := range targets {
		targets[i] = startLeavingTarget(t)
		listed = append(listed, fmt.Sprintf(`{"url":%q}`, targets[i].URL))
	}
	create := func(path, body, id string) string {
		t.Helper()
		r := s.Call("POST", path, s.AdminKey, body)
		var record map[string]any
		if err := json.Unmarshal([]byte(r.Body), &record); err != nil || r.Status != http.StatusCreated {
			t.Fatalf("POST %s: got %d %s", path, r.Status, r.Body)
		}
		return record[id].(string)
	}
	gateway := "/v1/gateways/" + create("/v1/gateways", `{"name":"g","upstreams":[{"name":"default","targets":[`+strings.Join(listed, ",")+`]}]}`, "gateway_id")
	create(gateway+"/routes", `{"path":"/a","methods":["GET","POST"],"auth":"none"}`, "route_id")

	var numbers atomic.Int64
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for range 6 {
		callers.Go(func() {
			client := &http.Transport{}
			defer client.CloseIdleConnections()
			for {
				select {
				case <-stop:
					return
				default:
				}
				n := numbers.Add(1)
				method, body := "GET", ""
				if n%2 == 0 {
					method, body = "POST", strings.Repeat("x", int(n%5000))
				}
				req, err := http.NewRequestWithContext(t.Context(), method, s.GatewayURL()+"/a", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("X-Number", strconv.FormatInt(n, 10))
				resp, err := client.RoundTrip(req)
				if err != nil {
					t.Errorf("request %d: got error %v", n, err)
					return
				}
				got, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil || resp.StatusCode != http.StatusOK || string(got) != body {
					t.Errorf("request %d: got %d and %d bytes, error %v; want 200 and %d", n, resp.StatusCode, len(got), err, len(body))
				}
			}
		})
	}
	upstream := gateway + "/upstreams/default"
	call := func(method, path, body string) {
		t.Helper()
		if r := s.Call(method, path, s.AdminKey, body); r.Status/100 != 2 {
			t.Fatalf("%s %s %s: got %d %s", method, path, body, r.Status, r.Body)
		}
	}
	random := rand.New(rand.NewPCG(1, 2)) // the same changes each time
	for step := range 80 {
		i := 1 + random.IntN(len(targets)-1) // the first always takes part
		target := targets[i]
		at := upstream + "/targets?url=" + url.QueryEscape(target.URL)
		switch away := target.left.Load() != 0; {
		case away:
			target.left.Store(0)
			if step%2 == 0 { // it may be there, and drain
				for _, other := range targets {
					other.left.Store(0)
				}
				call("PATCH", upstream, `{"targets":[`+strings.Join(listed, ",")+`]}`)
				continue
			}
			if r := s.Call("PATCH", at, s.AdminKey, `{"drain":false}`); r.Status == http.StatusNotFound {
				call("POST", upstream+"/targets", listed[i])
			}
		case step%3 == 0:
			call("PATCH", at, `{"drain":true}`)
			target.left.Store(numbers.Load())
		case step%3 == 1:
			call("DELETE", at, "")
			target.left.Store(numbers.Load())
		default:
			call("PATCH", at, fmt.Sprintf(`{"weight":%d}`, 1+random.IntN(1000)))
			call("PATCH", upstream, fmt.Sprintf(`{"balance":%q}`, []string{"least_requests", "round_robin"}[random.IntN(2)]))
		}
	}
	close(stop)
	callers.Wait()
	for i, target := range targets {
		if target.got.Load() == 0 {
			t.Errorf("target %d got no request", i)
		}
	}
}
