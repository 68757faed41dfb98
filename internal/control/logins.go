package control

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"io"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/user"
)

// FromClient is the request of a client that has no credential yet.
type FromClient struct{ Method, Path, ClientIP, RequestID string }

// as returns the actor of the request in the account of users.
func (f *FromClient) as(of *account.Account) *Actor {
	by := trusted(SystemActor, of)
	by.Method, by.Path, by.ClientIP, by.RequestID = f.Method, f.Path, f.ClientIP, f.RequestID
	return by
}

// accountOfUsers returns the account that users sign in to. Without an identity provider it is fault.NotFound.
func (s *Service) accountOfUsers(ctx context.Context) (*account.Account, error) {
	policy := s.cfg.SignIn
	if policy == nil {
		return nil, fault.Missing("identity provider")
	}
	of, err := view(ctx, s, func(tx ReadTx) (*account.Account, error) { return tx.AccountByName(ctx, policy.Account) })
	if fault.CodeOf(err) == fault.NotFound || err == nil && of.State != account.Active {
		return nil, fault.Denied("the account %s, to which users sign in (--sso-account), does not exist or is not active", policy.Account)
	}
	return of, err
}

// CodeRequest is what a command line has sent with the browser that signs in for it (RFC 8252).
type CodeRequest struct {
	RedirectURI string
	Challenge   string // PKCE S256
}

// SignInForCode is SignInUser for a command line on the machine of the browser: in place of a session, it creates a code
// that the browser takes there and that RedeemCode gives a token for.
func (s *Service) SignInForCode(ctx context.Context, in *UserSignIn, r *CodeRequest) (code string, u *user.User, err error) {
	if code, err = s.randomValue(); err != nil {
		return "", nil, fmt.Errorf("create a code: %w", err)
	}
	u, err = signInWith(ctx, s, in, func(w *work, u *user.User) (*user.User, error) {
		l := user.Login{
			Digest: sha256.Sum256([]byte(code)), AccountID: u.AccountID, Challenge: r.Challenge, RedirectURI: r.RedirectURI, State: user.LoginApproved,
			UserID: u.ID, AuthTime: in.AuthTime, CreatedAt: w.now, ExpiresAt: w.now.Add(user.CodeLifetime),
		}
		return u, w.InsertLogin(ctx, &l, user.MaxCodes)
	})
	if err != nil {
		return "", nil, err
	}
	return code, u, nil
}

// Redemption asks for the token of a code that a browser has taken to a command line.
type Redemption struct {
	FromClient
	Code, Verifier, RedirectURI string
	Machine                     string // "" if the command line does not say it
}

// errCode is the refusal of a code: it does not say which check has failed.
func errCode() error {
	return &fault.Error{Code: fault.Unauthorized, Auth: fault.KeyInvalid, Message: "the code is not valid: it was used, it has expired, or it is for another command; run keygate login --sso again"}
}

// RedeemCode returns a new token for a code, once. A code that is presented with another verifier or redirect URI than its own
// is used up.
func (s *Service) RedeemCode(ctx context.Context, in *Redemption) (*NewUserToken, error) {
	if err := user.CheckMachine("machine", in.Machine); err != nil {
		return nil, err
	}
	of, err := s.accountOfUsers(ctx)
	if err != nil {
		return nil, err
	}
	secret, err := s.newTokenSecret()
	if err != nil {
		return nil, err
	}
	made, err := inTx(ctx, s, in.as(of), func(w *work) (*NewUserToken, error) {
		l, err := w.Login(ctx, sha256.Sum256([]byte(in.Code)))
		switch {
		case fault.CodeOf(err) == fault.NotFound || err == nil && (l.AccountID != of.ID || l.UserCode != ""):
			return nil, errCode()
		case err != nil:
			return nil, err
		}
		if err := w.RedeemLogin(ctx, l.Digest); err != nil {
			return nil, err
		}
		challenge := sha256.Sum256([]byte(in.Verifier))
		if !w.now.Before(l.ExpiresAt) || l.RedirectURI != in.RedirectURI || subtle.ConstantTimeCompare([]byte(l.Challenge), []byte(base64.RawURLEncoding.EncodeToString(challenge[:]))) != 1 {
			return nil, nil //nolint:nilnil // the code is used up, and there is no token
		}
		l.Machine = in.Machine
		return w.newToken(ctx, l.UserID, secret, l, in.ClientIP)
	})
	if fault.CodeOf(err) == fault.NotFound || err == nil && made == nil { // another call was first, or the user is not active any more
		return nil, errCode()
	}
	return made, err
}

// DeviceRequest is what a device asks for that has no browser (RFC 8628).
type DeviceRequest struct {
	FromClient
	Network string // of the client: its address, or the /64 of an IPv6 address
	Machine string // "" if the device does not say it
}

// NewDevice is the sign-in of a device, with the device code that nothing else shows.
type NewDevice struct {
	user.Login
	DeviceCode string
}

// BeginDevice begins the sign-in of a device: a user who types its user code in the dashboard can approve it.
func (s *Service) BeginDevice(ctx context.Context, in *DeviceRequest) (*NewDevice, error) {
	if err := user.CheckMachine("machine", in.Machine); err != nil {
		return nil, err
	}
	of, err := s.accountOfUsers(ctx)
	if err != nil {
		return nil, err
	}
	code, err := s.randomValue()
	if err != nil {
		return nil, fmt.Errorf("begin a sign-in: %w", err)
	}
	return inTx(ctx, s, in.as(of), func(w *work) (*NewDevice, error) {
		ofNetwork, ofAccount, err := w.PendingDevices(ctx, of.ID, in.Network, w.now)
		if err != nil {
			return nil, err
		}
		if ofNetwork >= user.MaxDevices || ofAccount >= user.MaxAccountDevices {
			most, scope, from := int64(user.MaxDevices), "address", " from this address"
			if ofNetwork < user.MaxDevices {
				most, scope, from = user.MaxAccountDevices, "account", ""
			}
			return nil, &fault.Error{
				Code: fault.RateLimitExceeded, Message: fmt.Sprintf("%d devices%s wait for a user, which is the most that may: approve or deny some, or wait until they expire", most, from),
				Limit: &fault.Limit{Limit: most, ResetAt: w.now.Add(time.Minute).Unix(), Scope: scope},
			}
		}
		userCode, err := w.freeUserCode(ctx, s.cfg.Random)
		if err != nil {
			return nil, err
		}
		l := user.Login{
			Digest: sha256.Sum256([]byte(code)), AccountID: of.ID, UserCode: userCode, Network: in.Network, Address: in.ClientIP, Machine: in.Machine,
			State: user.LoginPending, Interval: user.PollInterval, CreatedAt: w.now, ExpiresAt: w.now.Add(user.DeviceLifetime),
		}
		return &NewDevice{l, code}, w.InsertLogin(ctx, &l, 0)
	})
}

// freeUserCode returns a user code that no other sign-in has.
func (w *work) freeUserCode(ctx context.Context, random io.Reader) (string, error) {
	for {
		var b [32]byte
		if _, err := io.ReadFull(random, b[:]); err != nil {
			return "", fmt.Errorf("begin a sign-in: %w", err)
		}
		code, ok := user.NewUserCode(b[:])
		if !ok {
			continue
		}
		if _, err := w.LoginByUserCode(ctx, w.actor.Account.ID, code); fault.CodeOf(err) == fault.NotFound {
			return code, nil
		} else if err != nil {
			return "", err
		}
	}
}

// RedeemDevice returns a new token for the device code of a sign-in that was approved, once. Otherwise the error has one of
// the codes of RFC 8628, section 3.5: fault.AuthorizationPending, fault.SlowDown, fault.AccessDenied, fault.ExpiredToken, or
// fault.InvalidGrant for a code that is not known.
func (s *Service) RedeemDevice(ctx context.Context, from *FromClient, deviceCode string) (*NewUserToken, error) {
	of, err := s.accountOfUsers(ctx)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256([]byte(deviceCode))
	l, err := view(ctx, s, func(tx ReadTx) (*user.Login, error) { return tx.Login(ctx, digest) })
	switch now := s.now(); {
	case fault.CodeOf(err) == fault.NotFound || err == nil && (l.AccountID != of.ID || l.UserCode == ""):
		return nil, errDeviceCode()
	case err != nil:
		return nil, err
	case !now.Before(l.ExpiresAt):
		return nil, fault.New(fault.ExpiredToken, "the device code has expired: begin again")
	case l.State == user.LoginDenied:
		return nil, fault.New(fault.AccessDenied, "the user has denied the sign-in")
	case l.State == user.LoginPending:
		return nil, s.poll(ctx, l, now)
	}
	secret, err := s.newTokenSecret()
	if err != nil {
		return nil, err
	}
	made, err := inTx(ctx, s, from.as(of), func(w *work) (*NewUserToken, error) {
		if err := w.RedeemLogin(ctx, digest); err != nil {
			return nil, err
		}
		return w.newToken(ctx, l.UserID, secret, l, from.ClientIP)
	})
	if fault.CodeOf(err) == fault.NotFound {
		return nil, errDeviceCode()
	}
	return made, err
}

func errDeviceCode() error {
	return fault.New(fault.InvalidGrant, "the device code is not valid: it was used, or its user may not sign in any more; begin again")
}

// pollTolerance is how much too soon a question may come, because of the way that it takes.
const pollTolerance = time.Second

// poll notes a question of a device that waits for its user, and returns what it has to do. A question that comes too soon
// is noted only as long as it makes the interval longer, so that a device does not make more writes by asking more often.
func (s *Service) poll(ctx context.Context, l *user.Login, now time.Time) error {
	if l.PolledAt.IsZero() || now.Sub(l.PolledAt) >= l.Interval-pollTolerance {
		l.PolledAt = now
		if err := s.cfg.Store.Update(ctx, func(tx Tx) error { return tx.PollLogin(ctx, l) }); err != nil {
			return err
		}
		return fault.New(fault.AuthorizationPending, "no user has approved the sign-in yet: ask again after %d seconds", int(l.Interval/time.Second))
	}
	if l.Interval < user.MaxPollInterval {
		l.Interval = min(l.Interval+user.SlowerBy, user.MaxPollInterval)
		if err := s.cfg.Store.Update(ctx, func(tx Tx) error { return tx.PollLogin(ctx, l) }); err != nil {
			return err
		}
	}
	return fault.New(fault.SlowDown, "the device asks too often: ask again after %d seconds", int(l.Interval/time.Second))
}

// errNoDevice is the refusal of a user code.
func errNoDevice() error {
	return fault.New(fault.NotFound, "no device waits with this code: compare it with what the device shows, or begin there again")
}

// mayDecide returns nil if a may decide about devices: a user in its browser. A token cannot get others.
func (a *Actor) mayDecide() error {
	if err := a.check(); err != nil {
		return err
	}
	if a.Kind == UserActor && a.User != nil && a.TokenID == "" {
		return nil
	}
	return fault.Denied("a device gets the rights of a user: sign in to the dashboard as that user, and type its code there")
}

// device returns the sign-in of a device that waits for a user and has the code that a user has typed.
func device(ctx context.Context, tx UserReader, accountID, typed string, now time.Time) (*user.Login, error) {
	code, ok := user.ParseUserCode(typed)
	if !ok {
		return nil, errNoDevice()
	}
	l, err := tx.LoginByUserCode(ctx, accountID, code)
	if fault.CodeOf(err) == fault.NotFound || err == nil && (l.State != user.LoginPending || !now.Before(l.ExpiresAt)) {
		return nil, errNoDevice()
	}
	return l, err
}

// Device returns the sign-in of the device that waits with a user code. If there is none, the error is fault.NotFound; the
// caller bounds how often a user may try.
func (s *Service) Device(ctx context.Context, actor *Actor, userCode string) (*user.Login, error) {
	if err := actor.mayDecide(); err != nil {
		return nil, err
	}
	return read(ctx, s, actor, func(tx ReadTx) (*user.Login, error) { return device(ctx, tx, actor.Account.ID, userCode, s.now()) })
}

// authLeeway is how long before the beginning of a device's sign-in a user may have authenticated who approves it. It allows
// for clocks that differ.
const authLeeway = time.Minute

// DecideDevice approves or denies the sign-in of the device that waits with a user code, and returns it. To approve it, the
// user must have authenticated since it began, so that nobody who was signed in already is led to approve it by one click.
func (s *Service) DecideDevice(ctx context.Context, actor *Actor, userCode string, approve bool) (*user.Login, error) {
	if err := actor.mayDecide(); err != nil {
		return nil, err
	}
	return inTx(Urgent(ctx), s, actor, func(w *work) (*user.Login, error) {
		l, err := device(ctx, w, actor.Account.ID, userCode, w.now)
		if err != nil {
			return nil, err
		}
		if approve && (!actor.Lately || actor.AuthTime.Add(authLeeway).Before(l.CreatedAt)) {
			return nil, &fault.Error{Code: fault.Forbidden, Auth: fault.ReauthenticationRequired, Message: "you signed in before the device asked, and it gets your rights: sign in once more, then approve it"}
		}
		l.State, l.UserID, l.AuthTime = user.LoginDenied, actor.User.ID, actor.AuthTime
		action := audit.UserDeny
		if approve {
			l.State, action = user.LoginApproved, audit.UserApprove
		}
		if err := w.DecideLogin(ctx, l, w.now); err != nil {
			return nil, err
		}
		return l, w.audit(ctx, action, actor.User.ID, "", differ(nil, fields{"address": orNil(l.Address), "machine": orNil(l.Machine)}))
	})
}
