package cluster

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// receiver is a webhook endpoint that remembers which keys were in the events it got.
type receiver struct {
	*httptest.Server
	mu   sync.Mutex
	keys map[string]bool // by key_id
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{keys: map[string]bool{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	var event struct {
		Data struct {
			KeyID string `json:"key_id"`
		} `json:"data"`
	}
	if err != nil || json.Unmarshal(body, &event) != nil {
		w.WriteHeader(http.StatusBadRequest) // the sender was killed while it sent the body
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys[event.Data.KeyID] = true
}

// missing returns how many of the keys were in no event.
func (r *receiver) missing(keyIDs []string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range keyIDs {
		if !r.keys[id] {
			n++
		}
	}
	return n
}
