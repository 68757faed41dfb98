package control

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/user"
)

// UserFilter selects users for a list. Fields that are zero select every user.
type UserFilter struct {
	State user.State
	Role  user.Role
	Email string // the whole email, ignoring the case of ASCII letters
	Query string // a part of the email or name, ignoring the case of ASCII letters
}

// UserCounts is how many records of users an account has.
type UserCounts struct {
	Users       int64 // in any state
	Invitations int64 // expired ones included, until they are removed
}

// UserReader finds users, their sessions and invitations.
type UserReader interface {
	// User returns a user that is not deleted.
	User(ctx context.Context, accountID, userID string) (*user.User, error)
	// UserByIdentity also returns a user that is deleted.
	UserByIdentity(ctx context.Context, accountID, issuer, subject string) (*user.User, error)
	// Users lists users that are not deleted, newest first.
	Users(ctx context.Context, accountID string, f UserFilter, p Page) ([]user.User, error)
	// UserCounts counts the records of an account.
	UserCounts(ctx context.Context, accountID string) (UserCounts, error)
	// HasOtherAdmin reports whether the account has an active user of an issuer with the role admin beside one.
	HasOtherAdmin(ctx context.Context, accountID, issuer, userID string) (bool, error)
	Invitation(ctx context.Context, accountID, invitationID string) (*user.Invitation, error)
	// InvitationByDigest returns the invitation with the digest of its secret, even if it has expired.
	InvitationByDigest(ctx context.Context, accountID string, digest [32]byte) (*user.Invitation, error)
	// Invitations lists invitations, newest first, expired ones included.
	Invitations(ctx context.Context, accountID string, p Page) ([]user.Invitation, error)
	// UserSession returns the session of a user with the user, even if it has expired or the user is deleted.
	UserSession(ctx context.Context, digest [32]byte) (*Session, error)
}

// UserStore finds and changes users, their sessions and invitations. The caller sets Version.
type UserStore interface {
	UserReader
	InsertUser(ctx context.Context, u *user.User) error
	// UpdateUser writes all fields but ID, AccountID, Issuer, Subject and CreatedAt.
	UpdateUser(ctx context.Context, u *user.User) error
	InsertInvitation(ctx context.Context, i *user.Invitation) error
	DeleteInvitation(ctx context.Context, accountID, invitationID string) error
	// InsertUserSession adds a session. It removes the oldest ones so that the user then has at most
	// ofUser and the users of the account at most ofAccount.
	InsertUserSession(ctx context.Context, s *Session, ofUser, ofAccount int) error
	// UseSession notes that a session of a user was used, and that the user was seen.
	UseSession(ctx context.Context, s *Session, at time.Time) error
	// DeleteUserSessions removes the sessions of a user. They are at most those that InsertUserSession leaves.
	DeleteUserSessions(ctx context.Context, userID string) error
	// DeleteUserSession removes a session, if there is one.
	DeleteUserSession(ctx context.Context, digest [32]byte) error
	// TrimUsers removes up to limit sessions and up to limit invitations that have expired by the given time. more
	// reports whether there may be others.
	TrimUsers(ctx context.Context, expired time.Time, limit int) (more bool, err error)
}
