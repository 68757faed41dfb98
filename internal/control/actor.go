package control

import (
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/user"
)

// ActorKind says what kind of actor makes a call.
type ActorKind string

// The kinds.
const (
	KeyActor        ActorKind = "key"        // presents an account-level key, or the session of one
	HolderActor     ActorKind = "holder"     // presents a gateway-level key to its gateway, and acts on that key alone
	OfflineActor    ActorKind = "offline"    // a command that opens the store itself
	UserActor       ActorKind = "user"       // has the session or a token of a user
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
	User      *user.User // of a UserActor, as it was authenticated
	Lately    bool       // it has authenticated at its provider within LatelyAuthenticated
	AuthTime  time.Time  // when it has authenticated there; zero if that is not known
	TokenID   string     // of the token that it presents; "" for its session in a browser
	Scope     apikey.Scopes
	Source    gateway.Source // the source that a push by this actor is recorded with
	Method    string         // of the request; "" without a request, like the fields below
	Path      string         // without the query
	ClientIP  string
	RequestID string
}

// CredentialID returns the identifier of the key or user; "" for an actor that has neither.
func (a *Actor) CredentialID() string {
	if a.Kind == UserActor && a.User != nil {
		return a.User.ID
	}
	return a.KeyID
}

// other returns how audit records name an actor that is not a key.
func (a *Actor) other() audit.Actor {
	switch {
	case a.KeyID != "":
		return audit.Actor{}
	case a.Kind == UserActor && a.User != nil:
		return audit.Actor{Kind: audit.ByUser, ID: a.User.ID, Name: a.User.Label()}
	}
	return audit.Actor{Kind: audit.ActorKind(a.Kind)}
}

// check returns fault.Unauthorized for an actor of no known kind, a KeyActor or HolderActor without a key, or a UserActor
// without a user.
func (a *Actor) check() error {
	switch {
	case a.Account == nil:
	case (a.Kind == KeyActor || a.Kind == HolderActor) && a.KeyID != "", a.Kind == UserActor && a.User != nil && a.KeyID == "", a.Kind == OfflineActor, a.Kind == RepositoryActor, a.Kind == CanaryActor, a.Kind == SystemActor:
		return nil
	}
	return &fault.Error{Code: fault.Unauthorized, Auth: fault.KeyInvalid, Message: "it is not known who makes the call"}
}

// trusted returns an actor that presents no credential and may do anything in the account.
func trusted(kind ActorKind, a *account.Account) *Actor {
	return &Actor{Kind: kind, Account: a, Scope: apikey.Scopes{{Word: apikey.Admin}}}
}
