// Package receiver is a webhook receiver on this machine's loopback: it believes
// what is signed, and hands it on.
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

// The bounds of what is read: no event comes near them, and whoever sends more
// is not Keygate.
const (
	maxPayload = 1 << 20
	readTime   = 10 * time.Second
	idleTime   = 2 * time.Minute
)

// tolerance is how far the time of a signature may be from now.
const tolerance = 5 * time.Minute

// Delivery is what was received and verified.
type Delivery struct {
	Event   client.Event
	Payload []byte // the body, byte for byte
	Header  http.Header
}

// Config is what a Receiver is made of.
type Config struct {
	// Name begins the path of the URL, so that its owner knows it again.
	Name string
	// Handle takes a delivery and returns the answer to it. It is called by
	// several goroutines. Both are required.
	Handle func(ctx context.Context, d *Delivery) (status int, body []byte)
	// Refused is told of what is not believed. Nil tells nobody.
	Refused func(err error)
}

// Receiver is a receiver that runs.
type Receiver struct {
	// URL is where it listens, with a path that nobody guesses.
	URL string
	// Secret is the signing secret that it verifies with.
	Secret string

	cfg    Config
	server *http.Server
	done   chan struct{} // closed when the server ended
}

// Start starts a receiver on a free port of 127.0.0.1. It runs until Close.
func Start(ctx context.Context, cfg Config) (*Receiver, error) {
	if cfg.Handle == nil || cfg.Name == "" {
		return nil, errors.New("receiver: Name and Handle are required")
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
	_, _ = rand.Read(key) // never fails: the program ends instead
	path := "/" + cfg.Name + "/" + rand.Text()
	r := &Receiver{
		URL: "http://" + l.Addr().String() + path, Secret: "whsec_" + base64.StdEncoding.EncodeToString(key),
		cfg: cfg, done: make(chan struct{}),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+path, r.receive)
	r.server = &http.Server{Handler: mux, ReadHeaderTimeout: readTime, ReadTimeout: readTime, IdleTimeout: idleTime}
	go func() {
		defer close(r.done)
		_ = r.server.Serve(l) // until Close
	}()
	return r, nil
}

// Close ends the receiver; what is being handled is cut off.
func (r *Receiver) Close() error {
	err := r.server.Close()
	<-r.done
	return err
}

func (r *Receiver) receive(w http.ResponseWriter, req *http.Request) {
	payload, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxPayload))
	if err != nil {
		r.refuse(w, fmt.Errorf("the body could not be read: %w", err))
		return
	}
	if err := client.VerifyDelivery(r.Secret, req.Header, payload, time.Now(), tolerance); err != nil {
		r.refuse(w, err)
		return
	}
	d := Delivery{Payload: payload, Header: req.Header}
	if err := json.Unmarshal(payload, &d.Event); err != nil {
		r.refuse(w, fmt.Errorf("the body is no event: %w", err))
		return
	}
	status, body := r.cfg.Handle(req.Context(), &d)
	w.WriteHeader(status)
	_, _ = w.Write(body) // a sender that left cannot be told
}

func (r *Receiver) refuse(w http.ResponseWriter, err error) {
	r.cfg.Refused(err)
	http.Error(w, err.Error(), http.StatusBadRequest)
}
