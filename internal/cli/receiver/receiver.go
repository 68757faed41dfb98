// Package receiver receives webhook deliveries on this machine.
package receiver

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/keygate/keygate/client"
)

// Bounds on reading a delivery. Keygate's own deliveries stay far below them.
const (
	maxPayload  = 1 << 20
	readTimeout = 10 * time.Second
	idleTimeout = 2 * time.Minute
)

// signatureTolerance is how far the time of a signature may be from now.
const signatureTolerance = 5 * time.Minute

// Delivery is a delivery whose signature was verified.
type Delivery struct {
	Event   client.Event
	Payload []byte // the body, byte for byte
	Header  http.Header
}

// Config configures a Receiver.
type Config struct {
	// Name is the first segment of the URL's path; the caller recognizes its
	// endpoints by it. Required.
	Name string
	// Handle takes a delivery and returns the response to it. It is called from
	// several goroutines at once. Required.
	Handle func(ctx context.Context, d *Delivery) (status int, body []byte)
	// Refused, if not nil, is called for each request that is refused because it
	// is too long, is not signed correctly or is not an event.
	Refused func(err error)
}

// Receiver is a webhook receiver on the loopback interface. It verifies the
// signature of each delivery and passes it to a handler.
type Receiver struct {
	// URL is the address to register. Its path cannot be guessed.
	URL string
	// Secret is the signing secret that deliveries are verified with.
	Secret string

	cfg    Config
	server *http.Server
	done   chan struct{} // closed when Serve has returned
}

// Start starts a receiver on a free port of 127.0.0.1. It runs until
// Close.
func Start(ctx context.Context, cfg Config) (*Receiver, error) {
	if cfg.Handle == nil || cfg.Name == "" {
		return nil, errors.New("start a webhook receiver: Name and Handle are required")
	}
	if cfg.Refused == nil {
		cfg.Refused = func(error) {}
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start a webhook receiver: %w", err)
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never returns an error
	path := "/" + cfg.Name + "/" + rand.Text()
	r := &Receiver{
		URL: "http://" + l.Addr().String() + path, Secret: "whsec_" + base64.StdEncoding.EncodeToString(key),
		cfg: cfg, done: make(chan struct{}),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+path, r.receive)
	r.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout,
	}
	go func() {
		defer close(r.done)
		_ = r.server.Serve(l) // until Close
	}()
	return r, nil
}

// Close stops the receiver and closes its connections, also those with a
// delivery in progress.
func (r *Receiver) Close() error {
	err := r.server.Close()
	<-r.done
	return err
}

func (r *Receiver) receive(w http.ResponseWriter, req *http.Request) {
	payload, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxPayload))
	if err != nil {
		r.refuse(w, fmt.Errorf("read the body: %w", err))
		return
	}
	if err := client.VerifyDelivery(r.Secret, req.Header, payload, time.Now(), signatureTolerance); err != nil {
		r.refuse(w, err)
		return
	}
	d := Delivery{Payload: payload, Header: req.Header}
	if err := json.Unmarshal(payload, &d.Event); err != nil {
		r.refuse(w, fmt.Errorf("the body is not an event: %w", err))
		return
	}
	status, body := r.cfg.Handle(req.Context(), &d)
	w.WriteHeader(status)
	_, _ = w.Write(body) // fails only if the sender closed the connection
}

func (r *Receiver) refuse(w http.ResponseWriter, err error) {
	r.cfg.Refused(err)
	http.Error(w, err.Error(), http.StatusBadRequest)
}
