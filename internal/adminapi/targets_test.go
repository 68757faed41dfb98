package adminapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/adminapi"
	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/targetreport"
)

// knownTargets is what the nodes know of targets, as a test says.
type knownTargets struct {
	mu      sync.Mutex
	status  []targetreport.NodeReport
	open    map[string]*int64
	asked   map[context.Context]bool // one for each call that waits
	returns bool                     // the target takes part
}

func (k *knownTargets) Status(context.Context, balance.Name) ([]targetreport.NodeReport, bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.status, true, nil
}

func (k *knownTargets) InFlight(ctx context.Context, _ balance.Name, _ string, _ int64) (map[string]*int64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked[ctx] = true
	return k.open, nil
}

func (k *knownTargets) TakesPart(balance.Name, string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.returns
}

// calls returns how many calls have waited.
func (k *knownTargets) calls() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.asked)
}

// setOpen sets what is in flight.
func (k *knownTargets) setOpen(open map[string]*int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open = open
}

func startWithTargets(t *testing.T) (*server, *knownTargets) {
	t.Helper()
	s := start(t)
	k := &knownTargets{asked: map[context.Context]bool{}}
	s.targets = k
	s.restart()
	return s, k
}

// Guarantee: targets.md 3. The record of one upstream has the state of its targets by node, in the order of the targets, and none in
// lists and responses to changes. Its ETag covers the configuration, so it is never a 304.
func TestUpstreamShowsTheStateOfItsTargets(t *testing.T) {
	s, k := startWithTargets(t)
	upstream := "/v1/gateways/" + s.newGateway("") + "/upstreams/default"
	at := time.Date(2027, 3, 1, 11, 0, 0, 0, time.UTC)
	s.post(upstream+"/targets", map[string]any{"url": "http://b"}).want(201)
	s.post(upstream+"/targets", map[string]any{"url": "http://a"}).want(201)
	entry := func(node, url, state, reason string) targetreport.NodeReport {
		return targetreport.NodeReport{Node: node, Report: targetreport.Report{URL: url, Address: url[7:] + ":80", State: state, Reason: reason, Since: at, InFlight: 3, Requests: 9, Failures: 2}}
	}
	checked := entry("node-2", "http://a", "unhealthy", "status 500")
	checked.LastCheck, checked.Draining, checked.Degraded = at, true, true
	ejected := entry("node-2", "http://b", "ejected", "connect")
	ejected.Until = at.Add(10 * time.Second)
	k.status = []targetreport.NodeReport{entry("node-1", "http://gone", "healthy", ""), checked, ejected, entry("node-1", "http://b", "healthy", "")}
	got := s.get(upstream).want(200)
	wantFields(t, got.json, upstreamFields+" all_unhealthy status")
	got.wantJSON("all_unhealthy", "true")
	var order []string
	for _, e := range got.json["status"].([]any) {
		entry := e.(map[string]any)
		wantFields(t, entry, "target address node degraded state draining since until reason in_flight requests failures last_check")
		order = append(order, fmt.Sprint(entry["target"], " ", entry["node"]))
	}
	if text := strings.Join(order, ", "); text != "http://b node-1, http://b node-2, http://a node-2, http://gone node-1" {
		t.Errorf("got the order %s", text)
	}
	if text, _ := json.Marshal(got.json["status"].([]any)[2]); string(text) != `{"address":"a:80","degraded":true,"draining":true,"failures":2,"in_flight":3,"last_check":"2027-03-01T11:00:00Z","node":"node-2","reason":"status 500","requests":9,"since":"2027-03-01T11:00:00Z","state":"unhealthy","target":"http://a","until":null}` {
		t.Errorf("got the entry %s", text)
	}
	if until := got.json["status"].([]any)[1].(map[string]any)["until"]; until != "2027-03-01T11:00:10Z" {
		t.Errorf("got a target that is ejected until %v", until)
	}
	tag := got.header.Get("ETag")
	again := s.do(request{method: "GET", path: upstream, header: map[string]string{"If-None-Match": tag}}).want(200)
	if again.header.Get("ETag") != tag {
		t.Errorf("got the ETag %s, want %s", again.header.Get("ETag"), tag)
	}
	wantFields(t, s.patch(upstream, `{}`).want(200).json, upstreamFields)
	wantFields(t, s.get(upstream[:strings.LastIndex(upstream, "/")]).want(200).data()[0], upstreamFields)
}

// Guarantee: targets.md 6. Calls that wait for a drain hold no slot among the calls of their account. At most 16 of an account wait; the
// next one is a 429 that changes nothing. They end with what is left, when nothing is, with the client, and with their key.
func TestCallsThatWaitForADrainAreBounded(t *testing.T) {
	s, k := startWithTargets(t)
	gateway := s.newGateway("")
	upstream := "/v1/gateways/" + gateway + "/upstreams/default"
	s.post(upstream+"/targets", map[string]any{"url": "http://b"}).want(201)
	at := upstream + "/targets?url=" + url.QueryEscape("http://b")
	three := int64(3)
	k.setOpen(map[string]*int64{"node-1": &three, "node-2": nil})
	s.patch(at+"&drain=1s", `{"drain": true}`).want(202).wantJSON("in_flight", `{"node-1":3,"node-2":null}`)

	key := s.accountKey("write")
	calling, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	ended := make(chan int, 16)
	wait := func(ctx context.Context, key string) {
		go func() {
			req, _ := http.NewRequestWithContext(ctx, "PATCH", s.http.URL+at+"&drain=10m", strings.NewReader(`{"drain": true}`))
			req.Header.Set("Authorization", "Bearer "+key)
			req.Header.Set("Content-Type", "application/json")
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				ended <- 0
				return
			}
			_ = res.Body.Close()
			ended <- res.StatusCode
		}()
	}
	for range 14 {
		wait(t.Context(), s.admin)
	}
	wait(calling, s.admin)
	wait(t.Context(), key)
	awaittest.True(t, "16 calls wait", func() bool { return k.calls() == 1+16 })
	full := s.delete(at+"&drain=1s").refused(429, "rate_limit_exceeded", "")
	if full.header.Get("Retry-After") == "" || !strings.Contains(full.raw, "at most 16") || !strings.Contains(s.get(upstream).want(200).raw, "http://b") {
		t.Errorf("got %s, want a 429 that has changed nothing", full.raw)
	}
	awaittest.True(t, "waiting calls hold no slot", func() bool { return adminapi.TakeCallSlots(t.Context(), s.handler, s.operator()) == nil })
	hangUp()
	if status := <-ended; status != 0 {
		t.Errorf("the call whose client hung up got %d", status)
	}
	for _, one := range s.get("/v1/keys?level=account").want(200).data() {
		if one["scope"] == "write" {
			s.delete("/v1/keys/" + one["key_id"].(string)).want(200)
		}
	}
	if status := <-ended; status != 401 {
		t.Errorf("the call whose key was revoked got %d, want 401", status)
	}
	k.setOpen(nil)
	for range 14 {
		if status := <-ended; status != 200 {
			t.Errorf("a call got %d after the last request, want 200", status)
		}
	}
	s.delete(at + "&drain=1s").want(200)
}

// Guarantee: targets.md 1 and 3. Draining and returning a target need write, removing it admin, and admin:gateways/gw_…/upstreams
// suffices for each; the gateways of other accounts are a 404.
func TestScopesOfCallsOnTargets(t *testing.T) {
	s, _ := startWithTargets(t)
	gateway := s.newGateway("")
	upstream := "/v1/gateways/" + gateway + "/upstreams/default"
	add := func() { s.post(upstream+"/targets", map[string]any{"url": "http://b"}).want(201) }
	_, stranger := s.tenant("stranger")
	for _, c := range []struct {
		key             string
		drain, end, del int
	}{
		{s.accountKey("read"), 403, 403, 403},
		{s.accountKey("write"), 200, 200, 403},
		{s.accountKey("admin:gateways/" + gateway + "/upstreams"), 200, 200, 200},
		{s.accountKey("admin:gateways/gw_other/upstreams"), 403, 403, 403},
		{stranger, 404, 404, 404},
	} {
		add()
		at := "/targets?url=" + url.QueryEscape("http://b") + "&drain=1s"
		s.do(request{method: "PATCH", path: upstream + at, key: c.key, body: `{"drain": true}`}).want(c.drain)
		s.do(request{method: "POST", path: upstream + "/targets/return?url=http://b", key: c.key}).want(c.end)
		if got := s.do(request{method: "DELETE", path: upstream + at, key: c.key}).want(c.del); got.status != 200 {
			s.delete(upstream + at).want(200)
		}
	}
	s.post(upstream+"/targets/return", nil).refused(422, "validation_failed", "url")
	s.post(upstream+"/targets/return?url=http://none", nil).refused(404, "not_found", "")
}
