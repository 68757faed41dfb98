package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// accountWithGateway creates an account with a gateway for host, through the API.
func (s *server) accountWithGateway(name, upstreamURL string) (accountID, admin, host, key string) {
	s.t.Helper()
	host = "api." + name + ".example"
	made := s.call(http.StatusCreated, "POST", "/v1/accounts", map[string]any{"name": name, "plan": "starter", "hosts": []string{"*." + name + ".example"}})
	accountID, admin = made.field(s.t, "account_id"), made.field(s.t, "key")
	gatewayID := s.callAs(admin, http.StatusCreated, "POST", "/v1/gateways", map[string]any{"name": name, "upstream_url": upstreamURL, "hostname": host}).field(s.t, "gateway_id")
	s.callAs(admin, http.StatusCreated, "POST", "/v1/gateways/"+gatewayID+"/routes", map[string]any{"path": "/*", "methods": []string{"GET"}})
	key = s.callAs(admin, http.StatusCreated, "POST", "/v1/keys", map[string]any{"name": "k", "scope": "read"}).field(s.t, "key")
	return accountID, admin, host, key
}

func (s *server) setAccountState(accountID, state string) {
	s.t.Helper()
	s.call(http.StatusOK, "PATCH", "/v1/accounts/"+accountID, map[string]any{"state": state})
}

// getHost sends a GET of a host to the data plane and returns the status and the error code.
func (s *server) getHost(c *http.Client, host, key string) (status int, code string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), awaittest.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.gateway+"/x", http.NoBody)
	if err != nil {
		return 0, "", err
	}
	req.Host = host
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	var body struct{ Error string }
	_ = json.NewDecoder(resp.Body).Decode(&body) // the upstream's is not JSON
	return resp.StatusCode, body.Error, nil
}

// Guarantee: once the call that suspends an account has returned, every request that starts
// afterwards is 404 gateway_not_found, over HTTP/1.1 and HTTP/2, while 8 clients call its
// gateway without pause, and its account-level key is 401. After the account is resumed, all
// requests pass.
func TestSuspendedAccountIsRefusedFromTheMomentTheCallReturns(t *testing.T) {
	up := newRecordingUpstream(t)
	s := startServer(t, "--upstream-allow-network", "127.0.0.0/8")
	s.newGateway(up.URL, nil) // unknown hosts reach it
	accountID, admin, host, key := s.accountWithGateway("acme", up.URL)
	clients := clientsByProtocol(t)
	for range 10 {
		var (
			suspended      atomic.Bool
			admitted, late atomic.Int64
			callers        sync.WaitGroup
		)
		for i := range 8 {
			c := clients[[]string{"HTTP/1.1", "HTTP/2.0"}[i%2]]
			callers.Go(func() {
				for {
					begunAfter := suspended.Load()
					status, code, err := s.getHost(c, host, key)
					switch {
					case err != nil:
						t.Errorf("call: %v", err)
						return
					case status == http.StatusOK:
						admitted.Add(1)
					}
					if begunAfter {
						if status != http.StatusNotFound || code != "gateway_not_found" {
							late.Add(1)
						}
						return
					}
				}
			})
		}
		awaittest.Holds(func() bool { return admitted.Load() >= 20 })
		s.setAccountState(accountID, "suspended")
		suspended.Store(true)
		if a := s.callAs(admin, http.StatusUnauthorized, "GET", "/v1/account", nil); a.json(t)["code"] != "key_invalid" {
			t.Errorf("the account's key: got %s, want key_invalid", a.body)
		}
		callers.Wait()
		if late.Load() != 0 || admitted.Load() == 0 {
			t.Fatalf("%d requests that started after the account was suspended were not 404 gateway_not_found, and %d passed before; want 0, and more than 0", late.Load(), admitted.Load())
		}
		s.setAccountState(accountID, "active")
		for protocol, c := range clients {
			if status, _, err := s.getHost(c, host, key); status != http.StatusOK || err != nil {
				t.Fatalf("%s after the account was resumed: got %d, %v, want 200", protocol, status, err)
			}
		}
	}
}

// Guarantee: a suspended account stays suspended across a kill, also for a key that an offline
// command creates, and its deliveries wait without failing: a delivery that is due at the same time
// as another account's is attempted only after the account is resumed.
func TestSuspensionSurvivesAKillAndDeliveriesWait(t *testing.T) {
	up := newRecordingUpstream(t)
	s := startServer(t, "--upstream-allow-network", "127.0.0.0/8", "--webhook-allow-network", "127.0.0.0/8", "--webhook-backoff", "1s,1s,1s,1s")
	accountID, admin, host, key := s.accountWithGateway("acme", up.URL)
	ours, theirs := newReceiver(t), newReceiver(t)
	ours.respondWith(http.StatusInternalServerError)
	theirs.respondWith(http.StatusInternalServerError)
	hook, _ := s.newWebhook(ours.URL, "key.created")
	s.callAs(admin, http.StatusCreated, "POST", "/v1/webhooks", map[string]any{"url": theirs.URL, "events": []string{"key.created"}})
	s.callAs(admin, http.StatusCreated, "POST", "/v1/keys", map[string]any{"name": "k", "scope": "read"})
	if !awaittest.Holds(func() bool { return len(theirs.all()) > 0 }) {
		t.Fatal("the first attempt was not made")
	}
	s.setAccountState(accountID, "suspended")
	s.restart(syscall.SIGKILL)
	theirs.respondWith(http.StatusOK)
	before := len(theirs.all())
	second := s.offline("account", "key", "--account", "acme", "--name", "second")
	s.newKey(nil) // due later than the waiting delivery
	if !awaittest.Holds(func() bool { return len(ours.all()) >= 2 }) {
		t.Fatal("the other account's delivery was not attempted again")
	}
	ours.respondWith(http.StatusOK)
	s.awaitDelivery(hook, "delivered")
	if got := len(theirs.all()); got != before {
		t.Errorf("got %d attempts for the suspended account, want %d", got, before)
	}
	for _, k := range []string{admin, second} {
		s.callAs(k, http.StatusUnauthorized, "GET", "/v1/keys", nil)
	}
	if a := s.mustSend(http.StatusNotFound, "GET", "/x", key, "Host: "+host); a.json(t)["error"] != "gateway_not_found" {
		t.Errorf("got %s, want gateway_not_found", a.body)
	}
	s.setAccountState(accountID, "active")
	s.awaitKey(second, "/v1/keys")
	s.mustSend(http.StatusOK, "GET", "/x", key, "Host: "+host)
	if !awaittest.Holds(func() bool { return len(theirs.all()) > before }) {
		t.Error("the waiting delivery was not attempted after the account was resumed")
	}
}

// Guarantee: a deleted account is gone with its gateway and keys, across a kill; its name and
// hostname are free; its audit log can still be verified on this machine.
func TestDeletedAccountIsGone(t *testing.T) {
	up := newRecordingUpstream(t)
	s := startServer(t, "--upstream-allow-network", "127.0.0.0/8")
	accountID, admin, host, key := s.accountWithGateway("acme", up.URL)
	s.mustSend(http.StatusOK, "GET", "/x", key, "Host: "+host)
	s.call(http.StatusConflict, "DELETE", "/v1/accounts/"+accountID, nil)
	s.setAccountState(accountID, "suspended")
	s.call(http.StatusOK, "DELETE", "/v1/accounts/"+accountID, nil)
	s.restart(syscall.SIGKILL)
	s.call(http.StatusNotFound, "GET", "/v1/accounts/"+accountID, nil)
	s.callAs(admin, http.StatusUnauthorized, "GET", "/v1/account", nil)
	s.mustSend(http.StatusNotFound, "GET", "/x", key, "Host: "+host)
	_, _, host, key = s.accountWithGateway("acme", up.URL)
	s.mustSend(http.StatusOK, "GET", "/x", key, "Host: "+host)
	if out, status := s.keygate("audit-log", "verify", "--data-dir", s.dataDir, "--account", accountID); status != 0 {
		t.Errorf("verify the log of the deleted account: got status %d, want 0\n%s", status, out)
	}
}
