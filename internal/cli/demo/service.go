package demo

import (
	_ "embed"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/keygate/keygate/internal/service"
)

// sampleDocument is the OpenAPI document of the sample service. Apart from its
// rate limits it says nothing about Keygate.
//
//go:embed openapi.yaml
var sampleDocument string

// sampleOrder is a record of the sample service.
type sampleOrder struct {
	ID    int    `json:"id"`
	Item  string `json:"item"`
	State string `json:"state"`
}

// Invoices of the sample service. The service breaks off the response for one of them, and fails
// with a 500 for another.
const (
	demoInvoices    = 40
	brokenInvoice   = 13
	failingInvoice  = 27
	demoInvoicePath = "/invoices/{id}" // as in the document
)

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
	mux.HandleFunc("GET /customers", func(w http.ResponseWriter, r *http.Request) {
		work(r, 8*time.Millisecond)
		writeSample(w, http.StatusOK, map[string]any{"customers": []map[string]any{{"id": 1, "name": "Ada"}, {"id": 2, "name": "Grace"}}})
	})
	mux.HandleFunc("GET /customers/{id}", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.PathValue("id"))
		if err != nil || n < 1 || n > 190 {
			writeSample(w, http.StatusNotFound, map[string]any{"message": "the sample service has customers 1 to 190"})
			return
		}
		work(r, 4*time.Millisecond)
		writeSample(w, http.StatusOK, map[string]any{"id": n, "name": "Customer " + strconv.Itoa(n)})
	})
	mux.HandleFunc("GET /invoices/{id}", sampleInvoice)
	mux.HandleFunc("GET /search", func(w http.ResponseWriter, r *http.Request) {
		work(r, 60*time.Millisecond)
		writeSample(w, http.StatusOK, map[string]any{"results": []any{}})
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

func sampleInvoice(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.PathValue("id"))
	switch {
	case err != nil || n < 1 || n > demoInvoices:
		writeSample(w, http.StatusNotFound, map[string]any{"message": "the sample service has invoices 1 to 40"})
	case n == brokenInvoice:
		panic(http.ErrAbortHandler) // closes the connection without a response
	case n == failingInvoice:
		writeSample(w, http.StatusInternalServerError, map[string]any{"message": "the sample service cannot read invoice 27"})
	default:
		work(r, 15*time.Millisecond)
		writeSample(w, http.StatusOK, map[string]any{"id": n, "amount": "19.90", "currency": "EUR"})
	}
}

// work waits as long as a service might work: usual on average, and at most 10 times as long. It ends
// early if the client has hung up.
func work(r *http.Request, usual time.Duration) {
	factor := min(rand.ExpFloat64(), 10)
	service.Wait(r.Context(), time.Duration(factor*float64(usual)))
}

func writeSample(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // fails only if the client closed the connection
}
