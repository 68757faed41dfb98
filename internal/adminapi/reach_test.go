package adminapi_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/adminapi"
)

// Guarantee: the upstreams of four gateways of an account are tried at once, and of sixteen in all. A further gateway is
// created at once, without a word about its upstream.
func TestReachesAreBounded(t *testing.T) {
	s := start(t)
	entered, leave := make(chan string), make(chan string)
	s.api.Reach = func(_ context.Context, gatewayID string) string {
		entered <- gatewayID
		return <-leave
	}
	handler := must(adminapi.New(s.api))(t)
	create := func(key, name string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/v1/gateways", strings.NewReader(fmt.Sprintf(`{"name": %q, "upstream_url": "http://192.0.2.1"}`, name)))
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("Content-Type", "application/json")
		handler.ServeHTTP(w, r)
		return w
	}
	warned := make(chan string, 16)
	keys := []string{s.admin, s.newAccount("b"), s.newAccount("c"), s.newAccount("d"), s.newAccount("e")}
	for i := range 16 {
		key := keys[i/4]
		go func() { warned <- create(key, fmt.Sprint("g", i)).Body.String() }()
		<-entered
		if i == 3 {
			checkSilent(t, "the fifth of an account", create(key, "fifth"))
		}
	}
	checkSilent(t, "the seventeenth in all", create(keys[4], "seventeenth"))
	for range 16 {
		leave <- "nothing is there"
	}
	for range 16 {
		if got := <-warned; !strings.Contains(got, `"warnings":["upstream_url cannot be reached now: nothing is there"]`) {
			t.Errorf("got %s, want the warning", got)
		}
	}
}

func checkSilent(t *testing.T, which string, w *httptest.ResponseRecorder) {
	t.Helper()
	if w.Code != 201 || strings.Contains(w.Body.String(), "warnings") {
		t.Errorf("%s: got %d %s, want a gateway without a warning", which, w.Code, w.Body)
	}
}
