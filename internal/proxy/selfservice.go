package proxy

import (
	"context"
	"errors"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/fault"
)

// MaxHolderBody is the most bytes of the body of a request to a service for holders of keys.
const MaxHolderBody = 1 << 10

// SelfService responds to the holders of keys, for requests whose verdict has the action admit.Serve.
type SelfService interface {
	// Serve returns the status and the JSON body of a response, or the error that it says. It may block until ctx ends, and
	// a little longer for what cannot be undone.
	Serve(ctx context.Context, r *HolderRequest) (status int, body []byte, err error)
}

// HolderRequest is a request of the holder of a key.
type HolderRequest struct {
	Service                     admit.Service
	AccountID, GatewayID, KeyID string
	KeyPrefix                   string
	Method, Path                string
	ClientIP, RequestID         string
	Body                        []byte // at most MaxHolderBody bytes
}

// Serve returns the response to the holder of a key. If there is an error, the verdict is a refusal with it afterwards,
// and the engine must respond with the error.
func (x *Exchange) Serve(ctx context.Context, body []byte) (status int, response []byte, err error) {
	v := &x.Verdict
	if x.cfg.SelfService == nil {
		return 0, nil, fault.New(fault.Unavailable, "this server does not serve holders of keys")
	}
	client := ""
	if x.addr.IsValid() {
		client = x.addr.String()
	}
	status, response, err = x.cfg.SelfService.Serve(ctx, &HolderRequest{
		Service: v.Service, AccountID: v.Gateway.AccountID, GatewayID: v.Gateway.ID, KeyID: v.Caller.ID(), KeyPrefix: v.KeyPrefix,
		Method: x.Method, Path: v.Path, ClientIP: client, RequestID: x.RequestID(), Body: body,
	})
	if err != nil {
		if !errors.As(err, new(*fault.Error)) {
			err = &fault.Error{Code: fault.Internal, Message: Panicked().Message, Err: err}
		}
		v.Deny(err)
		return 0, nil, err
	}
	x.Result, x.served = accesslog.SelfServed, true
	return status, response, nil
}

// ReadsBody reports whether the service of an admitted request reads the request's body.
func (x *Exchange) ReadsBody() bool { return x.Verdict.Service == admit.Rotate }

// NoTunnel returns the 400 for a request that asks a service for holders of keys for a tunnel.
func NoTunnel() *fault.Error {
	return fault.New(fault.InvalidRequest, "this path cannot be used for a WebSocket")
}
