package control

import (
	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// ActorKind says what kind of actor makes a call.
type ActorKind string

// The kinds.
const (
	KeyActor        ActorKind = "key"        // presents an account-level key, or the session of one
	HolderActor     ActorKind = "holder"     // presents a gateway-level key to its gateway, and acts on that key alone
	OfflineActor    ActorKind = "offline"    // a command that opens the store itself
	RepositoryActor ActorKind = "repository" // the repository that a gateway follows
	CanaryActor     ActorKind = "canary"     // Keygate, which judges a canary
	SystemActor     ActorKind = "system"     // Keygate itself
)

// Actor is who makes a call, for permissions and the audit record, with the request that made it. A kind has to be
// given: every operation refuses the zero Actor.
type Actor struct {
	Kind      ActorKind
	Account   *account.Account // whose records the call concerns
	KeyID     string           // of a KeyActor or HolderActor, with KeyPrefix
	KeyPrefix string
	Scope     apikey.Scopes
	Source    gateway.Source // the source that a push by this actor is recorded with
	Method    string         // of the request; "" without a request, like the fields below
	Path      string         // without the query
	ClientIP  string
	RequestID string
}

// check returns fault.Unauthorized for an actor of no known kind, or a KeyActor or HolderActor without a key.
func (a *Actor) check() error {
	switch {
	case a.Account == nil:
	case (a.Kind == KeyActor || a.Kind == HolderActor) && a.KeyID != "", a.Kind == OfflineActor, a.Kind == RepositoryActor, a.Kind == CanaryActor, a.Kind == SystemActor:
		return nil
	}
	return &fault.Error{Code: fault.Unauthorized, Auth: fault.KeyInvalid, Message: "it is not known who makes the call"}
}

// trusted returns an actor that presents no credential and may do anything in the account.
func trusted(kind ActorKind, a *account.Account) *Actor {
	return &Actor{Kind: kind, Account: a, Scope: apikey.Scopes{{Word: apikey.Admin}}}
}
