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
	// UserOfToken returns a token with its user, even if it has expired or the user is deleted.
	UserOfToken(ctx context.Context, digest [32]byte) (*TokenOfUser, error)
	// UserToken returns a token of a user, even if it has expired.
	UserToken(ctx context.Context, accountID, userID, tokenID string) (*user.Token, error)
	// UserTokens lists the tokens of a user, newest first, expired ones included.
	UserTokens(ctx context.Context, accountID, userID string, p Page) ([]user.Token, error)
	// Login returns a sign-in of a command line, even if it has expired.
	Login(ctx context.Context, digest [32]byte) (*user.Login, error)
	// LoginByUserCode returns the sign-in of a device, even if it has expired.
	LoginByUserCode(ctx context.Context, accountID, userCode string) (*user.Login, error)
	// PendingDevices counts the sign-ins of devices of an account that wait for a user: those of a network, and all.
	PendingDevices(ctx context.Context, accountID, network string, now time.Time) (ofNetwork, ofAccount int64, err error)
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
	// DeleteUserSessions removes the sessions of a user, and does what DeleteUserTokens does. They are at most those that
	// InsertUserSession leaves.
	DeleteUserSessions(ctx context.Context, userID string) error
	// DeleteUserSession removes a session, if there is one.
	DeleteUserSession(ctx context.Context, digest [32]byte) error
	// InsertUserToken adds a token of an active user; the error is fault.NotFound if the user is not active. It removes the
	// oldest ones so that the user then has at most ofUser and the users of the account at most ofAccount.
	InsertUserToken(ctx context.Context, t *user.Token, ofUser, ofAccount int) error
	// UseUserToken notes that a token was used, and that its user was seen.
	UseUserToken(ctx context.Context, t *user.Token, at time.Time) error
	DeleteUserToken(ctx context.Context, t *user.Token) error
	// DeleteUserTokens removes the tokens of a user, and the sign-ins of command lines that it has decided about. They are
	// at most those that InsertUserToken and the bounds of sign-ins leave.
	DeleteUserTokens(ctx context.Context, userID string) error
	// InsertLogin adds a sign-in of a command line. If it has a user, InsertLogin removes the oldest ones through a
	// browser so that the user then has at most ofUser.
	InsertLogin(ctx context.Context, l *user.Login, ofUser int) error
	// DecideLogin writes State, UserID and AuthTime of a sign-in that waits for a user. The error is fault.NotFound if it
	// does not wait any more, or the user is not active.
	DecideLogin(ctx context.Context, l *user.Login, at time.Time) error
	// PollLogin writes Interval and PolledAt.
	PollLogin(ctx context.Context, l *user.Login) error
	// RedeemLogin removes a sign-in that is approved. The error is fault.NotFound if there is none, so that one is redeemed
	// once.
	RedeemLogin(ctx context.Context, digest [32]byte) error
	// TrimUsers removes up to limit sessions and up to limit invitations that have expired by the given time, and as many
	// tokens and sign-ins of command lines of which that is TokensKept or LoginsKept ago. more reports whether there may be
	// others.
	TrimUsers(ctx context.Context, expired time.Time, limit int) (more bool, err error)
}
