package control

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/user"
)

// SessionIdle is how long a session of a user lasts without a call.
const SessionIdle = 2 * time.Hour

// LatelyAuthenticated is how long after its authentication a user may make the changes that require one.
const LatelyAuthenticated = 5 * time.Minute

// SignInPolicy says who may sign in as a user (identity.md, section 3).
type SignInPolicy struct {
	Issuer  string   // of the identity provider
	Account string   // name of the account of all users
	Domains []string // of emails, in lower case; empty for any
}

// allows reports whether users with an email may sign in.
func (p *SignInPolicy) allows(email string) bool {
	return len(p.Domains) == 0 || slices.Contains(p.Domains, user.Domain(email))
}

// RoleClaim is what the claim with the roles of a user says.
type RoleClaim struct {
	Given bool      // roles are mapped, and the provider has sent the claim
	Role  user.Role // the highest of its roles; "" if none of its values is mapped
}

// UserSignIn is a sign-in that the identity provider has vouched for.
type UserSignIn struct {
	Identity   user.Identity
	Roles      RoleClaim
	Invitation string    // the secret of the link that the user followed; "" for none
	AuthTime   time.Time // zero if it is not known
	Previous   [32]byte  // digest of the cookie of the session that the browser had; zero for none

	FromClient
}

// refusedSignIn is why somebody whom the provider knows may not sign in.
type refusedSignIn struct {
	reason string
	userID string
}

func (e *refusedSignIn) Error() string { return e.reason }

func refuseSignIn(format string, args ...any) *refusedSignIn {
	return &refusedSignIn{reason: fmt.Sprintf(format, args...)}
}

// SignInUser creates a session of the user that the identity is, and the user if it is new and has a role or an invitation.
// It returns the value of the cookie, which nothing else shows. An identity that may not sign in is fault.Forbidden; this
// is in the audit log, and uses up no invitation. The email decides about domains and invitations alone, never about who
// somebody is.
func (s *Service) SignInUser(ctx context.Context, in *UserSignIn) (value string, session *Session, err error) {
	if value, err = s.randomValue(); err != nil {
		return "", nil, fmt.Errorf("create a session: %w", err)
	}
	session, err = signInWith(ctx, s, in, func(w *work, u *user.User) (*Session, error) { return w.newUserSession(ctx, u, in, value) })
	if err != nil {
		return "", nil, err
	}
	return value, session, nil
}

// signInWith signs a user in as SignInUser says. give gives it what it gets by that, in the same transaction, in which it then
// is the actor.
func signInWith[T any](ctx context.Context, s *Service, in *UserSignIn, give func(w *work, u *user.User) (T, error)) (T, error) {
	var none T
	of, err := s.accountOfUsers(ctx)
	if err != nil {
		return none, err
	}
	if err := in.Identity.Check(); err != nil {
		return none, err
	}
	by := in.as(of)
	given, err := inTx(ctx, s, by, func(w *work) (T, error) {
		u, err := w.signIn(ctx, s.cfg.SignIn, in)
		if err != nil {
			return none, err
		}
		given, err := give(w, u)
		if err != nil {
			return none, err
		}
		w.actAs(u)
		return given, w.audit(ctx, audit.UserSignIn, u.ID, "", nil)
	})
	var refused *refusedSignIn
	if errors.As(err, &refused) {
		return none, s.recordRefusal(ctx, by, in, refused)
	}
	return given, err
}

// signIn returns the user of an identity as it is from now on. The error is a *refusedSignIn if there is none.
func (w *work) signIn(ctx context.Context, policy *SignInPolicy, in *UserSignIn) (*user.User, error) {
	who := &in.Identity
	known, err := w.UserByIdentity(ctx, w.actor.Account.ID, who.Issuer, who.Subject)
	if err != nil && fault.CodeOf(err) != fault.NotFound {
		return nil, err
	}
	refused := func(format string, args ...any) (*user.User, error) {
		e := refuseSignIn(format, args...)
		if known != nil {
			e.userID = known.ID
		}
		return nil, e
	}
	switch {
	case who.Issuer != policy.Issuer:
		return refused("the token is of the issuer %q, and not of --sso-issuer", who.Issuer)
	case known != nil && known.State == user.Suspended:
		return refused("the user is suspended: an administrator can resume it")
	case len(policy.Domains) > 0 && (!who.EmailVerified || !policy.allows(who.Email)):
		return refused("the email is not a verified one in a domain of --sso-allowed-domains: use another account of the identity provider, or let it send the claims email and email_verified")
	case in.Roles.Given && in.Roles.Role == "":
		return refused("no value of the claim with the roles (--sso-roles-claim) is in --sso-role-map: give the user a role or group that is, or add one to the map")
	case known != nil && known.State == user.Active:
		return w.signInKnown(ctx, known, in)
	}
	role, invited := in.Roles.Role, false
	if in.Invitation != "" {
		i, err := w.invitation(ctx, in)
		if err != nil {
			return nil, err
		}
		if invited = true; role == "" {
			role = i.Role
		}
		if err := w.Tx.DeleteInvitation(ctx, i.AccountID, i.ID); err != nil {
			return nil, err
		}
	}
	switch {
	case known != nil && !invited:
		return refused("the user was deleted, and stays barred until an administrator invites it")
	case role == "":
		return refused("the user is new and has no role: an administrator can invite it, or the operator maps a claim of the identity provider to roles (--sso-roles-claim and --sso-role-map)")
	}
	return w.signInNew(ctx, known, in, role, invited)
}

// invitation returns the invitation of a sign-in if it is valid and for this identity.
func (w *work) invitation(ctx context.Context, in *UserSignIn) (*user.Invitation, error) {
	i, err := w.InvitationByDigest(ctx, w.actor.Account.ID, sha256.Sum256([]byte(in.Invitation)))
	switch {
	case fault.CodeOf(err) == fault.NotFound || err == nil && !w.now.Before(i.ExpiresAt):
		return nil, refuseSignIn("the invitation is not valid: it was used or deleted, or it has expired; an administrator can make another")
	case err != nil:
		return nil, err
	case !in.Identity.EmailVerified || !user.SameEmail(i.Email, in.Identity.Email):
		return nil, refuseSignIn("the invitation is for another email than the verified one of this account of the identity provider")
	}
	return i, nil
}

// signInKnown notes what the provider says of a user now.
func (w *work) signInKnown(ctx context.Context, known *user.User, in *UserSignIn) (*user.User, error) {
	u := *known
	u.Email, u.Name, u.LastSeenAt = in.Identity.Email, in.Identity.Name, w.now
	if in.Roles.Given {
		u.Role = in.Roles.Role
	}
	if u.Role != known.Role {
		u.Version++
		if err := w.roleChanged(ctx, &u, known.Role); err != nil {
			return nil, err
		}
	}
	return &u, w.Tx.UpdateUser(ctx, &u)
}

// signInNew creates a user, or again one that was deleted.
func (w *work) signInNew(ctx context.Context, deleted *user.User, in *UserSignIn, role user.Role, invited bool) (*user.User, error) {
	u := user.User{
		ID: id.NewAt(id.User, w.now), AccountID: w.actor.Account.ID, Issuer: in.Identity.Issuer, Subject: in.Identity.Subject, Email: in.Identity.Email, Name: in.Identity.Name,
		Role: role, State: user.Active, Invited: invited, LastSeenAt: w.now, CreatedAt: w.now, Version: 1,
	}
	if deleted != nil {
		u.ID, u.CreatedAt, u.Version = deleted.ID, deleted.CreatedAt, deleted.Version+1
		if err := w.Tx.UpdateUser(ctx, &u); err != nil {
			return nil, err
		}
	} else {
		n, err := w.UserCounts(ctx, u.AccountID)
		if err != nil {
			return nil, err
		}
		if n.Users >= user.MaxUsers {
			return nil, refuseSignIn("the account has %d users, those that were deleted included, which is the most that it may have", n.Users)
		}
		if err := w.InsertUser(ctx, &u); err != nil {
			return nil, err
		}
	}
	return &u, w.audit(ctx, audit.UserCreate, u.ID, "", differ(nil, userFields(&u)))
}

// newUserSession creates a session in place of the one that the browser had.
func (w *work) newUserSession(ctx context.Context, u *user.User, in *UserSignIn, value string) (*Session, error) {
	session := &Session{
		Digest: sha256.Sum256([]byte(value)), AccountID: u.AccountID, UserID: u.ID, CreatedAt: w.now, ExpiresAt: w.now.Add(SessionLifetime),
		UsedAt: w.now, AuthTime: in.AuthTime, User: u, Account: w.actor.Account,
	}
	if in.Previous != [32]byte{} {
		if err := w.DeleteUserSession(ctx, in.Previous); err != nil {
			return nil, err
		}
	}
	return session, w.InsertUserSession(ctx, session, SessionsPerKey, SessionsPerAccount)
}

// recordRefusal writes the audit record of a sign-in that was refused, and returns the error for the user.
func (s *Service) recordRefusal(ctx context.Context, by *Actor, in *UserSignIn, refused *refusedSignIn) error {
	_, err := inTx(ctx, s, by, func(w *work) (any, error) {
		return nil, w.audit(ctx, audit.UserRefuse, refused.userID, "", differ(nil, fields{
			"issuer": in.Identity.Issuer, "subject": in.Identity.Subject, "email": orNil(in.Identity.Email), "reason": refused.reason,
		}))
	})
	if err != nil {
		return err
	}
	s.cfg.Log.WarnContext(ctx, "a user may not sign in", "subject", in.Identity.Subject, "email", in.Identity.Email, "reason", refused.reason)
	return fault.Denied("%s", refused.reason)
}

// userSession returns the session of a user with the user and its account. If it has ended, or the user may not sign in any
// more, the error is fault.NotFound.
func (s *Service) userSession(ctx context.Context, tx ReadTx, digest [32]byte) (*Session, error) {
	policy := s.cfg.SignIn
	if policy == nil {
		return nil, fault.Missing("session")
	}
	session, err := tx.UserSession(ctx, digest)
	if err != nil {
		return nil, err
	}
	if session.Account, err = tx.Account(ctx, session.AccountID); err != nil {
		return nil, err
	}
	now := s.now()
	if !now.Before(session.ExpiresAt) || !now.Before(session.UsedAt.Add(SessionIdle)) || !policy.mayBe(session.User, session.Account) {
		return nil, fault.Missing("session")
	}
	return session, nil
}

// noteUse notes that a session of a user was used. If the store takes no changes now, the session may end sooner.
func (s *Service) noteUse(ctx context.Context, session *Session) {
	now := s.now()
	if now.Sub(session.UsedAt) < userAgainAfter {
		return
	}
	s.note(ctx, session.UserID, "the use of a session", func(tx Tx) error { return tx.UseSession(ctx, session, now) })
}

// admitUser looks at a calling user again. It may have been suspended, deleted or demoted since it was authenticated.
func (w *work) admitUser(ctx context.Context) error {
	a, err := w.Account(ctx, w.actor.Account.ID)
	if err != nil && fault.CodeOf(err) != fault.NotFound {
		return err
	}
	active := err == nil && a.State == account.Active
	u, err := w.User(ctx, w.actor.Account.ID, w.actor.User.ID)
	switch {
	case err != nil && fault.CodeOf(err) != fault.NotFound:
		return err
	case err != nil || !active || u.State != user.Active:
		return &fault.Error{Code: fault.Unauthorized, Auth: fault.KeyInvalid, Message: "the session has ended: sign in again"}
	case w.actor.TokenID != "":
		if _, err := w.UserToken(ctx, u.AccountID, u.ID, w.actor.TokenID); fault.CodeOf(err) == fault.NotFound {
			return &fault.Error{Code: fault.Unauthorized, Auth: fault.KeyInvalid, Message: "the token was revoked: run keygate login --sso again"}
		} else if err != nil {
			return err
		}
	}
	if u.Role != w.actor.User.Role {
		return fault.Denied("the role of the user has just changed from %s to %s: repeat the call", w.actor.User.Role, u.Role)
	}
	return nil
}
