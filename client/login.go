package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
)

// UserTokens lists the tokens of a user that have not expired, newest first. It needs the scope admin without a resource,
// except for a user's own tokens.
func (c *Client) UserTokens(ctx context.Context, userID string, o ListOptions) iter.Seq2[UserToken, error] {
	return list[UserToken](ctx, c, userPath(userID)+"/tokens", nil, o.PageSize)
}

// RevokeUserToken revokes a token of a user and returns it. When it returns, every node refuses the token.
func (c *Client) RevokeUserToken(ctx context.Context, userID, tokenID string) (*UserToken, error) {
	return call[UserToken](ctx, c, http.MethodDelete, userPath(userID)+"/tokens/"+url.PathEscape(tokenID), nil)
}

// RevokeUserTokens revokes all tokens of a user and returns them, newest first.
func (c *Client) RevokeUserTokens(ctx context.Context, userID string) ([]UserToken, error) {
	all, err := call[UserTokenList](ctx, c, http.MethodDelete, userPath(userID)+"/tokens", nil)
	if err != nil {
		return nil, err
	}
	return all.Data, nil
}

// SignOut revokes the token of a user that Config.Key is. A key is an *Error with status 404.
func (c *Client) SignOut(ctx context.Context) error {
	_, err := call[Session](ctx, c, http.MethodDelete, "/v1/session", nil)
	return err
}

// SignInProvider returns through which identity provider users sign in. It needs no key.
func (c *Client) SignInProvider(ctx context.Context) (*SignInProvider, error) {
	return call[SignInProvider](ctx, c, http.MethodGet, "/v1/session/sso/provider", nil)
}

// RedeemSignInCode returns the token for a code that a browser has brought (RFC 8252). It is not repeated, since a code is
// redeemed once.
func (c *Client) RedeemSignInCode(ctx context.Context, in RedeemCodeRequest) (*NewToken, error) {
	return once[NewToken](ctx, c, "/v1/session/sso/token", in)
}

// BeginDevice begins the sign-in of a device (RFC 8628), which a user approves in the dashboard.
func (c *Client) BeginDevice(ctx context.Context, in BeginDeviceRequest) (*DeviceAuthorization, error) {
	return once[DeviceAuthorization](ctx, c, "/v1/session/device", in)
}

// deviceGrant is the grant_type of a device code.
const deviceGrant = "urn:ietf:params:oauth:grant-type:device_code"

// RedeemDevice returns the token of a device that a user has approved, once. Until then it is an *Error with the Code
// authorization_pending or slow_down; access_denied, expired_token and invalid_grant end the sign-in.
func (c *Client) RedeemDevice(ctx context.Context, deviceCode string) (*NewToken, error) {
	return once[NewToken](ctx, c, "/v1/session/device/token", RedeemDeviceRequest{GrantType: deviceGrant, DeviceCode: deviceCode})
}

// Device returns the device that waits with a user code. It and DecideDevice need the session of a user, which a Client does not
// have: they are for programs that send its cookie with Config.HTTPClient.
func (c *Client) Device(ctx context.Context, userCode string) (*Device, error) {
	return call[Device](ctx, c, http.MethodGet, "/v1/session/device?user_code="+url.QueryEscape(userCode), nil)
}

// DecideDevice approves or denies the device that waits with a user code, and returns it.
func (c *Client) DecideDevice(ctx context.Context, userCode string, approve bool) (*Device, error) {
	return call[Device](ctx, c, http.MethodPost, "/v1/session/device/approve", DecideDeviceRequest{UserCode: userCode, Approve: approve})
}

// once makes a POST that is not repeated if its response is lost.
func once[T any](ctx context.Context, c *Client, path string, in any) (*T, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("encode the request body of POST %s: %w", path, err)
	}
	return do[T](ctx, c, &Request{Method: http.MethodPost, Path: path, Body: body, once: true})
}

// Scope returns the scopes of the key or user that the account was read with.
func (a *CallingAccount) Scope() string {
	if a.User == nil {
		return a.Key.Scope
	}
	return map[string]string{"viewer": "read", "editor": "write", "admin": "admin"}[a.User.Role]
}

// CredentialID returns the identifier of the key or user that the account was read with.
func (a *CallingAccount) CredentialID() string {
	if a.User == nil {
		return a.Key.KeyID
	}
	return a.User.UserID
}
