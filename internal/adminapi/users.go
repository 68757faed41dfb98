package adminapi

import (
	"net/http"
	"reflect"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/user"
)

// UserRecord is a user. It is exported so that it can be embedded; see KeyRecord.
type UserRecord struct {
	UserID     string     `json:"user_id" doc:"Identifier of the user." example:"usr_01jz8y5c3te9b8r2m6q4v7x0dd"`
	AccountID  string     `json:"account_id" doc:"Identifier of the account." example:"acct_01jz8y5c3te9b8r2m6q4v7x0ee"`
	Issuer     string     `json:"issuer" doc:"URL of the identity provider. It and subject say who the user is." example:"https://login.example.com"`
	Subject    string     `json:"subject" doc:"What the identity provider calls the user." example:"00u1a2b3c4"`
	Email      *string    `json:"email" doc:"Email at the last sign-in, for display; null if the provider did not say it." example:"ada@example.com"`
	Name       *string    `json:"name" doc:"Name at the last sign-in, for display; null if the provider did not say it." example:"Ada Lovelace"`
	Role       string     `json:"role" enum:"viewer,editor,admin" doc:"What the user may do: viewer has the scope read, editor write, admin admin."`
	State      string     `json:"state" enum:"active,suspended" doc:"State of the user. One that is suspended has no session and cannot sign in."`
	Invited    bool       `json:"invited" doc:"Whether the user came by an invitation."`
	LastSeenAt *time.Time `json:"last_seen_at" doc:"When the user made a call last, to the minute; null for never."`
	CreatedAt  time.Time  `json:"created_at" doc:"When the user signed in first."`
}

// callingUserRecord is the user of a session.
type callingUserRecord struct {
	_ struct{} `nullable:"true"`
	UserRecord
}

func presentCallingUser(u *user.User) *callingUserRecord {
	return &callingUserRecord{UserRecord: presentUser(u)}
}

func presentUser(u *user.User) UserRecord {
	return UserRecord{
		UserID: u.ID, AccountID: u.AccountID, Issuer: u.Issuer, Subject: u.Subject, Email: optionalText(u.Email), Name: optionalText(u.Name), Role: string(u.Role),
		State: string(u.State), Invited: u.Invited, LastSeenAt: optionalTime(u.LastSeenAt), CreatedAt: u.CreatedAt.UTC(),
	}
}

func userResponse(u *user.User) response { return withETag(presentUser(u), u.Version) }

type updateUserRequest struct {
	Role  *string `json:"role,omitempty" enum:"viewer,editor,admin" doc:"What the user may do from now on. If roles are mapped from a claim of the identity provider, the next sign-in sets it again."`
	State *string `json:"state,omitempty" enum:"active,suspended" doc:"suspended ends the sessions of the user before the response is sent, and bars it; active lets it sign in again."`
}

type createInvitationRequest struct {
	Email string `json:"email" minLength:"1" maxLength:"254" doc:"Email of the one account of the identity provider that may use the invitation. The provider must have verified it." example:"ada@example.com"`
	Role  string `json:"role" enum:"viewer,editor,admin" doc:"Role of the user, unless a claim of the identity provider is mapped to another."`
}

// InvitationRecord is an invitation. It is exported so that it can be embedded; see KeyRecord.
type InvitationRecord struct {
	InvitationID string    `json:"invitation_id" doc:"Identifier of the invitation." example:"inv_01jz8y5c3te9b8r2m6q4v7x0dd"`
	Email        string    `json:"email" doc:"Email that the user must have." example:"ada@example.com"`
	Role         string    `json:"role" enum:"viewer,editor,admin" doc:"Role of the user."`
	CreatedAt    time.Time `json:"created_at" doc:"When the invitation was created."`
	ExpiresAt    time.Time `json:"expires_at" doc:"Until when it can be used."`
}

// newInvitationRecord is the only record that holds the link of an invitation.
type newInvitationRecord struct {
	InvitationRecord
	Link    string `json:"link,omitempty" doc:"Link for the user, which works once. It is returned only once, and is absent from a replayed response. Keygate sends no mail." example:"https://keygate.example.com/v1/session/sso?invitation=…"`
	Message string `json:"message,omitempty" doc:"In a replayed response: why link is absent."`
}

func presentInvitation(i *user.Invitation) InvitationRecord {
	return InvitationRecord{InvitationID: i.ID, Email: i.Email, Role: string(i.Role), CreatedAt: i.CreatedAt.UTC(), ExpiresAt: i.ExpiresAt.UTC()}
}

func userFilters() []queryParam {
	return []queryParam{
		enumParam("state", "Only users with this state.", string(user.Active), string(user.Suspended)),
		enumParam("role", "Only users with this role.", string(user.Viewer), string(user.Editor), string(user.Admin)),
		{name: "email", doc: "Only users with this email.", schema: textSchema(), example: "ada@example.com"},
		{name: "q", doc: "Only users whose email or name contains this text.", schema: textSchema(), example: "ada"},
	}
}

// onlyAdmins ends the description of a call for administrators, and lately of one that needs a fresh sign-in.
const (
	onlyAdmins = " Needs the scope admin without a resource, or the role admin."
	lately     = onlyAdmins + " A user who has authenticated more than 5 minutes ago gets 403 with the code reauthentication_required."
)

func (a *API) userOperations() []operation {
	record := reflect.TypeFor[UserRecord]()
	return []operation{{
		id: "listUsers", method: http.MethodGet, path: "/v1/users", tag: "Users",
		summary: "List users", description: "Returns the people who sign in through the identity provider, newest first." + onlyAdmins,
		query: append(pageParams(), userFilters()...), success: http.StatusOK, result: reflect.TypeFor[list[UserRecord]](),
		run: a.listUsers,
	}, {
		id: "listInvitations", method: http.MethodGet, path: "/v1/users/invitations", tag: "Users",
		summary: "List invitations", description: "Returns the invitations that can still be used, newest first, without their links." + onlyAdmins,
		query: pageParams(), success: http.StatusOK, result: reflect.TypeFor[list[InvitationRecord]](),
		run: a.listInvitations,
	}, {
		id: "createInvitation", method: http.MethodPost, path: "/v1/users/invitations", tag: "Users",
		summary: "Invite a user",
		description: "Creates an invitation for one email. Its link lets an account of the identity provider with that verified email sign in for the first time, once, within 72 hours. " +
			"Only this response has the link." + lately,
		body: reflect.TypeFor[createInvitationRequest](), replayable: true,
		success: http.StatusCreated, result: reflect.TypeFor[newInvitationRecord](), hasLocation: true, errors: []int{http.StatusConflict},
		run: takes(a.createInvitation),
	}, {
		id: "deleteInvitation", method: http.MethodDelete, path: "/v1/users/invitations/{invitation_id}", tag: "Users",
		summary: "Delete an invitation", description: "Deletes an invitation. Its link no longer works when the call returns." + lately,
		success: http.StatusOK, result: reflect.TypeFor[InvitationRecord](),
		run: a.deleteInvitation,
	}, {
		id: "getUser", method: http.MethodGet, path: "/v1/users/{user_id}", tag: "Users",
		summary: "Get a user", description: "Returns one user." + onlyAdmins,
		success: http.StatusOK, result: record, hasETag: true, hasState: true,
		run: a.getUser,
	}, {
		id: "updateUser", method: http.MethodPatch, path: "/v1/users/{user_id}", tag: "Users",
		summary: "Change the role of a user, suspend or resume it",
		description: "Changes the given fields. When the call returns, the change is in force on every node: a user that was suspended has no session, and one that was demoted is refused what its new role does not allow. " +
			"The last active user with the role admin stays one (409)." + lately,
		body: reflect.TypeFor[updateUserRequest](), ifMatch: true,
		success: http.StatusOK, result: record, hasETag: true, errors: []int{http.StatusConflict},
		run: takes(a.updateUser),
	}, {
		id: "deleteUser", method: http.MethodDelete, path: "/v1/users/{user_id}", tag: "Users",
		summary: "Delete a user",
		description: "Deletes a user and ends its sessions. Who it was stays barred, whatever role the identity provider gives it, until it is invited. " +
			"The last active user with the role admin cannot be deleted (409). Returns the record as it was before." + lately,
		ifMatch: true, success: http.StatusOK, result: record, errors: []int{http.StatusConflict},
		run: a.deleteUser,
	}}
}

func (a *API) listUsers(c *call) (response, error) {
	f := control.UserFilter{State: user.State(c.query.Get("state")), Role: user.Role(c.query.Get("role")), Email: c.query.Get("email"), Query: c.query.Get("q")}
	return page(c, "users", c.cursorBinding(userFilters()), func(p control.Page) ([]user.User, error) {
		return a.cfg.Control.Users(c.ctx, &c.actor, f, p)
	}, func(u *user.User) (string, UserRecord) { return u.ID, presentUser(u) })
}

func (a *API) getUser(c *call) (response, error) {
	return respond(userResponse)(a.cfg.Control.User(c.ctx, &c.actor, c.params["user_id"]))
}

func (a *API) updateUser(c *call, req updateUserRequest) (response, error) {
	return respond(userResponse)(a.cfg.Control.UpdateUser(c.ctx, &c.actor, c.params["user_id"], control.UserPatch{Role: setTo(req.Role), State: setTo(req.State)}, c.match))
}

func (a *API) deleteUser(c *call) (response, error) {
	return show(presentUser)(a.cfg.Control.DeleteUser(c.ctx, &c.actor, c.params["user_id"], c.match))
}

func (a *API) listInvitations(c *call) (response, error) {
	return page(c, "invitations", "", func(p control.Page) ([]user.Invitation, error) {
		return a.cfg.Control.Invitations(c.ctx, &c.actor, p)
	}, func(i *user.Invitation) (string, InvitationRecord) { return i.ID, presentInvitation(i) })
}

func (a *API) createInvitation(c *call, req createInvitationRequest) (response, error) {
	present := func(i *control.NewInvitation) response {
		r := newInvitationRecord{InvitationRecord: presentInvitation(&i.Invitation), Link: a.invitationLink(i.Secret)}
		replay := r
		replay.Link = ""
		replay.Message = "this is a replay of the first response, which was the only one with the link: if the link is lost, delete the invitation and create another"
		res := response{body: r}.created("/v1/users/invitations/" + i.ID)
		res.replay = replay
		return res
	}
	made, err := a.cfg.Control.Invite(withIdempotency(c, present), &c.actor, control.InvitationInput{Email: req.Email, Role: req.Role})
	if err == nil && a.cfg.SSO == nil {
		err = fault.New(fault.Conflict, "this node has no --sso-issuer")
	}
	return respond(present)(made, err)
}

func (a *API) deleteInvitation(c *call) (response, error) {
	return show(presentInvitation)(a.cfg.Control.DeleteInvitation(c.ctx, &c.actor, c.params["invitation_id"]))
}
