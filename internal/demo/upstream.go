// Package demo holds what "keygate demo" puts behind the gateway: a small
// service with an OpenAPI document of its own.
package demo

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"strconv"
)

//go:embed openapi.yaml
var document []byte

// Document returns the service's OpenAPI document, as it would come from any
// service: it knows nothing of Keygate but its limits.
func Document() []byte { return append([]byte(nil), document...) }

// order is a record of the service.
type order struct {
	ID    int    `json:"id"`
	Item  string `json:"item"`
	State string `json:"state"`
}

// Handler is the service. It keeps nothing.
func Handler() http.Handler {
	orders := []order{{1, "coffee", "shipped"}, {2, "tea", "open"}, {3, "cocoa", "open"}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders", func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusOK, map[string]any{"orders": orders})
	})
	mux.HandleFunc("GET /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.PathValue("id"))
		if err != nil || n < 1 || n > len(orders) {
			write(w, http.StatusNotFound, map[string]any{"message": "the sample service has orders 1 to 3"})
			return
		}
		write(w, http.StatusOK, orders[n-1])
	})
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusCreated, order{len(orders) + 1, "whatever you sent", "open"})
	})
	mux.HandleFunc("GET /whoami", func(w http.ResponseWriter, r *http.Request) {
		// What the gateway tells the service of the caller.
		write(w, http.StatusOK, map[string]any{
			"key_id": r.Header.Get("X-Keygate-Key-Id"), "owner": r.Header.Get("X-Keygate-Key-Owner"),
			"gateway_id": r.Header.Get("X-Keygate-Gateway-Id"), "request_id": r.Header.Get("X-Request-Id"),
		})
	})
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusOK, map[string]any{"status": "ok"})
	})
	return mux
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a caller that left needs no answer
}
