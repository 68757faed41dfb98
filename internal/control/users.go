package control

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/user"
)

// UserPatch is the body of a user's update.
type UserPatch struct {
	Role  Optional[string]
	State Optional[string]
}

// InvitationInput is the body of an invitation.
type InvitationInput struct{ Email, Role string }

// NewInvitation is an invitation with its secret, which is returned only once.
type NewInvitation struct {
	user.Invitation
	Secret string
}

// mayReadUsers returns nil if a may see users.
func (a *Actor) mayReadUsers() error {
	if a.isFullAdmin() {
		return nil
	}
	return fault.Denied("users are for administrators: this call requires the scope admin without a resource")
}

// mayChangeUsers returns nil if a may change users and invite others, who may then do everything.
func (a *Actor) mayChangeUsers() error {
	if err := a.mayReadUsers(); err != nil {
		return err
	}
	return a.authenticatedLately()
}

// authenticatedLately returns an error for a user who has to sign in again before such a change.
func (a *Actor) authenticatedLately() error {
	if a.Kind != UserActor || a.User == nil || a.Lately { // check refuses one without a user
		return nil
	}
	return &fault.Error{Code: fault.Forbidden, Auth: fault.ReauthenticationRequired, Message: "you signed in longer than 5 minutes ago, and this change requires that it is really you: sign in once more, then repeat it"}
}

// Users lists the account's users that f selects, newest first.
func (s *Service) Users(ctx context.Context, actor *Actor, f UserFilter, p Page) ([]user.User, error) {
	if err := actor.mayReadUsers(); err != nil {
		return nil, err
	}
	return read(ctx, s, actor, func(tx ReadTx) ([]user.User, error) { return tx.Users(ctx, actor.Account.ID, f, p) })
}

// User returns one user.
func (s *Service) User(ctx context.Context, actor *Actor, userID string) (*user.User, error) {
	if err := actor.mayReadUsers(); err != nil {
		return nil, err
	}
	return read(ctx, s, actor, func(tx ReadTx) (*user.User, error) { return tx.User(ctx, actor.Account.ID, userID) })
}

// userToChange returns a user of the account whose version m allows.
func (w *work) userToChange(ctx context.Context, userID string, m Match) (*user.User, error) {
	u, err := w.User(ctx, w.actor.Account.ID, userID)
	if err != nil {
		return nil, err
	}
	return u, require(m, u.Version)
}

// UpdateUser changes the role or the state of a user. When it returns, it is in force on every node, which read the user at
// each call; the sessions of a user that is suspended have ended. The last admin is fault.Conflict.
func (s *Service) UpdateUser(ctx context.Context, actor *Actor, userID string, p UserPatch, m Match) (*user.User, error) {
	if err := actor.mayChangeUsers(); err != nil {
		return nil, err
	}
	if err := p.validate(); err != nil {
		return nil, err
	}
	return inTx(Urgent(ctx), s, actor, func(w *work) (*user.User, error) {
		before, err := w.userToChange(ctx, userID, m)
		if err != nil {
			return nil, err
		}
		u := *before
		p.apply(&u)
		if u == *before {
			return before, nil
		}
		if err := w.keepsAdmin(ctx, before, &u); err != nil {
			return nil, err
		}
		u.Version++
		return &u, w.storeUser(ctx, before, &u)
	})
}

func (p *UserPatch) validate() error {
	var errs []error
	if role := user.Role(p.Role.Value); p.Role.Present && (p.Role.Null || !role.Valid()) {
		errs = append(errs, fault.Invalid("role", "must be viewer, editor or admin"))
	}
	if state := user.State(p.State.Value); p.State.Present && (p.State.Null || state != user.Active && state != user.Suspended) {
		errs = append(errs, fault.Invalid("state", "must be active or suspended"))
	}
	return fault.Join(errs...)
}

func (p *UserPatch) apply(u *user.User) {
	if p.Role.Present {
		u.Role = user.Role(p.Role.Value)
	}
	if p.State.Present {
		u.State = user.State(p.State.Value)
	}
}

// keepsAdmin returns fault.Conflict if the last active admin would not be one any more. The provider can demote it, and keys
// remain.
func (w *work) keepsAdmin(ctx context.Context, before, after *user.User) error {
	isAdmin := func(u *user.User) bool { return u.Role == user.Admin && u.State == user.Active }
	if !isAdmin(before) || isAdmin(after) {
		return nil
	}
	other, err := w.HasOtherAdmin(ctx, before.AccountID, before.Issuer, before.ID)
	if err != nil || other {
		return err
	}
	return fault.New(fault.Conflict, "this is the last active user with the role admin: give the role to another user first")
}

// storeUser stores u with the audit records and events of what has changed. It ends the sessions of a user that is not active.
func (w *work) storeUser(ctx context.Context, before, u *user.User) error {
	if err := w.Tx.UpdateUser(ctx, u); err != nil {
		return err
	}
	if u.Role != before.Role {
		if err := w.roleChanged(ctx, u, before.Role); err != nil {
			return err
		}
	}
	if u.State == before.State {
		return nil
	}
	action := audit.UserResume
	if u.State == user.Suspended {
		action = audit.UserSuspend
		if err := w.DeleteUserSessions(ctx, u.ID); err != nil {
			return err
		}
		if err := w.raise(ctx, event.UserSuspended, event.User{UserID: u.ID, Email: textOrNil(u.Email), Name: textOrNil(u.Name), Role: string(u.Role)}); err != nil {
			return err
		}
	}
	return w.audit(ctx, action, u.ID, "", audit.Diff{"state": {string(before.State), string(u.State)}})
}

func (w *work) roleChanged(ctx context.Context, u *user.User, before user.Role) error {
	if err := w.audit(ctx, audit.UserUpdate, u.ID, "", audit.Diff{"role": {string(before), string(u.Role)}}); err != nil {
		return err
	}
	return w.raise(ctx, event.UserRoleChanged, event.UserRole{
		User:         event.User{UserID: u.ID, Email: textOrNil(u.Email), Name: textOrNil(u.Name), Role: string(u.Role)},
		PreviousRole: string(before),
	})
}

// DeleteUser deletes a user, ends its sessions and returns it as it was. Who it was stays barred until it is invited. The
// last admin is fault.Conflict.
func (s *Service) DeleteUser(ctx context.Context, actor *Actor, userID string, m Match) (*user.User, error) {
	if err := actor.mayChangeUsers(); err != nil {
		return nil, err
	}
	return inTx(Urgent(ctx), s, actor, func(w *work) (*user.User, error) {
		before, err := w.userToChange(ctx, userID, m)
		if err != nil {
			return nil, err
		}
		u := *before
		u.State, u.Version = user.Deleted, u.Version+1
		if err := w.keepsAdmin(ctx, before, &u); err != nil {
			return nil, err
		}
		if err := w.Tx.UpdateUser(ctx, &u); err != nil {
			return nil, err
		}
		if err := w.DeleteUserSessions(ctx, u.ID); err != nil {
			return nil, err
		}
		return before, w.audit(ctx, audit.UserDelete, u.ID, "", differ(userFields(before), nil))
	})
}

// userFields returns what audit records show of a user.
func userFields(u *user.User) fields {
	return fields{"issuer": u.Issuer, "subject": u.Subject, "email": orNil(u.Email), "name": orNil(u.Name), "role": string(u.Role), "invited": u.Invited}
}

// Invitations lists the account's invitations that can still be used, newest first.
func (s *Service) Invitations(ctx context.Context, actor *Actor, p Page) ([]user.Invitation, error) {
	if err := actor.mayReadUsers(); err != nil {
		return nil, err
	}
	return read(ctx, s, actor, func(tx ReadTx) ([]user.Invitation, error) {
		list, err := tx.Invitations(ctx, actor.Account.ID, Page{Limit: user.MaxInvitations})
		if err != nil {
			return nil, err
		}
		now := s.now()
		list = slices.DeleteFunc(list, func(i user.Invitation) bool {
			return !now.Before(i.ExpiresAt) || p.After != "" && i.ID >= p.After
		})
		return list[:min(len(list), p.Limit)], nil
	})
}

// Invite creates an invitation for an email.
func (s *Service) Invite(ctx context.Context, actor *Actor, in InvitationInput) (*NewInvitation, error) {
	if err := actor.mayChangeUsers(); err != nil {
		return nil, err
	}
	if err := actor.check(); err != nil {
		return nil, err
	}
	invalid := s.checkInvitation(actor, &in)
	if onlyChecks(ctx) {
		return nil, s.checked(ctx, actor, invalid, func(ReadTx) error { return nil })
	}
	if invalid != nil {
		return nil, invalid
	}
	secret, err := s.randomValue()
	if err != nil {
		return nil, fmt.Errorf("create an invitation: %w", err)
	}
	return inTx(ctx, s, actor, func(w *work) (*NewInvitation, error) {
		n, err := w.UserCounts(ctx, actor.Account.ID)
		if err != nil {
			return nil, err
		}
		if n.Invitations >= user.MaxInvitations {
			return nil, fault.New(fault.Conflict, "the account has %d invitations, which is the most that it may have: delete some, or wait until they expire", n.Invitations)
		}
		i := user.Invitation{
			ID: id.NewAt(id.Invitation, w.now), AccountID: actor.Account.ID, Digest: sha256.Sum256([]byte(secret)), Email: in.Email, Role: user.Role(in.Role),
			CreatedAt: w.now, ExpiresAt: w.now.Add(user.InvitationLifetime),
		}
		if err := w.InsertInvitation(ctx, &i); err != nil {
			return nil, err
		}
		return &NewInvitation{i, secret}, w.audit(ctx, audit.InvitationCreate, i.ID, "", differ(nil, invitationFields(&i)))
	})
}

func (s *Service) checkInvitation(actor *Actor, in *InvitationInput) error {
	var badRole error
	if !user.Role(in.Role).Valid() {
		badRole = fault.Invalid("role", "must be viewer, editor or admin")
	}
	badEmail := user.CheckEmail("email", in.Email)
	policy := s.cfg.SignIn
	switch {
	case policy == nil:
		return fault.New(fault.Conflict, "nobody can sign in by invitation: the operator has to start Keygate with --sso-issuer and --sso-client-id first")
	case actor.Account.Name != policy.Account:
		return fault.New(fault.Conflict, "users sign in to the account %s alone (--sso-account)", policy.Account)
	case badEmail == nil && !policy.allows(in.Email):
		badEmail = fault.Invalid("email", "is in a domain whose users may not sign in: the operator can add it to --sso-allowed-domains")
	}
	return fault.Join(badEmail, badRole)
}

func invitationFields(i *user.Invitation) fields {
	return fields{"email": i.Email, "role": string(i.Role), "expires_at": timeOrNil(i.ExpiresAt)}
}

// DeleteInvitation deletes an invitation, which cannot be used any more, and returns it.
func (s *Service) DeleteInvitation(ctx context.Context, actor *Actor, invitationID string) (*user.Invitation, error) {
	if err := actor.mayChangeUsers(); err != nil {
		return nil, err
	}
	return inTx(ctx, s, actor, func(w *work) (*user.Invitation, error) {
		i, err := w.Invitation(ctx, actor.Account.ID, invitationID)
		if err != nil {
			return nil, err
		}
		if err := w.Tx.DeleteInvitation(ctx, actor.Account.ID, invitationID); err != nil {
			return nil, err
		}
		return i, w.audit(ctx, audit.InvitationDelete, i.ID, "", differ(invitationFields(i), nil))
	})
}

// randomValue returns a text with 256 random bits.
func (s *Service) randomValue() (string, error) {
	random := make([]byte, sessionBytes)
	if _, err := io.ReadFull(s.cfg.Random, random); err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(random), nil
}

// userAgainAfter is how long a use of a session or token is not noted again.
const userAgainAfter = time.Minute
