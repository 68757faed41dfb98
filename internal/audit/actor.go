package audit

import "strings"

// ActorKind says what kind of actor made a change.
type ActorKind string

// The kinds.
const (
	ByKey        ActorKind = "key"
	ByUser       ActorKind = "user"
	ByOffline    ActorKind = "offline"    // a command on the server's machine
	ByRepository ActorKind = "repository" // the repository that a gateway follows
	ByCanary     ActorKind = "canary"     // Keygate, which judges a canary
	BySystem     ActorKind = "system"     // Keygate itself
)

// Actor is who made a change, if it was not a key.
type Actor struct {
	Kind ActorKind
	ID   string // of a user; "" for the others
	Name string // of a user, at the time of the change
}

// By returns who made the change of a management record. The kind is "" in a record of a version that did not store it.
func (r *Record) By() Actor {
	if r.ActorKeyID != "" {
		return Actor{Kind: ByKey, ID: r.ActorKeyID}
	}
	return r.Actor
}

// userMark begins the identifiers of users.
const userMark = "usr_"

// ActorText returns the actor as it is stored: the identifier of a key; that of a user, a space and the name; or the kind.
func (r *Record) ActorText() string {
	switch {
	case r.ActorKeyID != "":
		return r.ActorKeyID
	case r.Actor.Kind == ByUser && r.Actor.Name != "":
		return r.Actor.ID + " " + r.Actor.Name
	case r.Actor.Kind == ByUser:
		return r.Actor.ID
	}
	return string(r.Actor.Kind)
}

// SetActorText sets the actor from what ActorText returned.
func (r *Record) SetActorText(text string) {
	r.ActorKeyID, r.Actor = "", Actor{}
	switch kind := ActorKind(text); {
	case strings.HasPrefix(text, userMark):
		r.Actor.Kind = ByUser
		r.Actor.ID, r.Actor.Name, _ = strings.Cut(text, " ")
	case kind == ByOffline || kind == ByRepository || kind == ByCanary || kind == BySystem:
		r.Actor.Kind = kind
	default:
		r.ActorKeyID = text
	}
}

// actorID returns what a filter compares of an actor that is stored: the identifier, or the kind.
func actorID(text string) string {
	first, _, _ := strings.Cut(text, " ")
	return first
}
