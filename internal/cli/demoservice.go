package cli

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"strconv"
)

// sampleDocument is the OpenAPI document of the sample service. Apart from its
// rate limits it says nothing about Keygate.
//
//go:embed demo-openapi.yaml
var sampleDocument string

// sampleOrder is a record of the sample service.
type sampleOrder struct {
	ID    int    `json:"id"`
	Item  string `json:"item"`
	State string `json:"state"`
}

// sampleService returns the handler of the service that "keygate demo" puts
// behind its gateway. It stores nothing.
func sampleService() http.Handler {
	orders := []sampleOrder{{1, "coffee", "shipped"}, {2, "tea", "open"}, {3, "cocoa", "open"}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders", func(w http.ResponseWriter, _ *http.Request) {
		writeSample(w, http.StatusOK, map[string]any{"orders": orders})
	})
	mux.HandleFunc("GET /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.PathValue("id"))
		if err != nil || n < 1 || n > len(orders) {
			writeSample(w, http.StatusNotFound, map[string]any{"message": "the sample service has orders 1 to 3"})
			return
		}
		writeSample(w, http.StatusOK, orders[n-1])
	})
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, _ *http.Request) {
		writeSample(w, http.StatusCreated, sampleOrder{len(orders) + 1, "whatever you sent", "open"})
	})
	mux.HandleFunc("GET /whoami", func(w http.ResponseWriter, r *http.Request) {
		// The headers in which the gateway identifies the caller to the service.
		writeSample(w, http.StatusOK, map[string]any{
			"key_id": r.Header.Get("X-Keygate-Key-Id"), "owner": r.Header.Get("X-Keygate-Key-Owner"),
			"gateway_id": r.Header.Get("X-Keygate-Gateway-Id"), "request_id": r.Header.Get("X-Request-Id"),
		})
	})
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		writeSample(w, http.StatusOK, map[string]any{"status": "ok"})
	})
	return mux
}

func writeSample(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // fails only if the client closed the connection
}
