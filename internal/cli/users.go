package cli

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

func newUsers(a *app) *cobra.Command {
	return newGroup("users", "Manage users who sign in through an identity provider",
		newUsersList(a), newUsersGet(a), newUsersUpdate(a), newUsersDelete(a), newUsersTokens(a), newUsersRevoke(a), newUsersInvite(a), newUsersInvitations(a), newUsersUninvite(a))
}

func userName(u *client.User) string {
	switch {
	case u.Email != nil:
		return *u.Email
	case u.Name != nil:
		return *u.Name
	}
	return u.Subject
}

func userLabel(u *client.User) string { return "user " + withID(userName(u), u.UserID) }

// userID returns the identifier of the user with an identifier or email.
func (a *app) userID(api *client.Client, ref string) (string, error) {
	if isID(ref) {
		return ref, nil
	}
	var found []client.User
	for u, err := range api.Users(a.Context, client.UserFilter{Email: ref}) {
		if err != nil {
			return "", err
		}
		if found = append(found, u); len(found) > 1 {
			return "", usagef("several users have the email %s, such as %s and %s: give the identifier", ref, found[0].UserID, found[1].UserID)
		}
	}
	if len(found) == 0 {
		return "", &notFoundError{fmt.Sprintf("there is no user %q: keygate users list shows them", ref)}
	}
	return found[0].UserID, nil
}

func oneUser(a *app) *one {
	return &one{app: a, flag: "user-id", usage: "`id` or email of the user" + alsoArgument, find: a.userID}
}

func userFields(u *client.User) []terminal.Field {
	fields := []terminal.Field{
		{"USER ID", u.UserID}, {"EMAIL", str(u.Email)}, {"NAME", str(u.Name)}, {"ROLE", u.Role}, {"STATE", u.State}, {"ISSUER", u.Issuer}, {"SUBJECT", u.Subject},
		{"LAST SEEN", terminal.Moment(u.LastSeenAt)}, {"CREATED", terminal.Moment(&u.CreatedAt)},
	}
	if u.Invited {
		fields = append(fields, terminal.Field{"INVITED", "yes"})
	}
	return fields
}

func newUsersList(a *app) *cobra.Command {
	f := &client.UserFilter{}
	c := &cobra.Command{Use: "list", Short: "List users, newest first", Args: noArgs}
	c.Flags().StringVar(&f.State, "state", "", "only users with this `state`: active or suspended")
	c.Flags().StringVar(&f.Role, "role", "", "only users with this `role`: viewer, editor or admin")
	c.Flags().StringVarP(&f.Query, "query", "q", "", "only users whose email or name contains this `text`")
	return lists(a, c, lister[client.User]{
		options: &f.ListOptions, check: emptyFlags,
		find: func(ctx context.Context, api *client.Client) (iter.Seq2[client.User, error], error) {
			return api.Users(ctx, *f), nil
		},
		columns: []terminal.Column{
			{Name: "USER ID", Rank: 2}, {Name: "EMAIL", Flex: true}, {Name: "NAME", Flex: true, Rank: 3}, {Name: "ROLE"}, {Name: "STATE", State: true}, {Name: "LAST SEEN", Rank: 1},
		},
		row: func(u *client.User) []string {
			return []string{u.UserID, str(u.Email), str(u.Name), u.Role, u.State, a.When(u.LastSeenAt)}
		},
		empty: func(c *cobra.Command) string {
			return noneMatch(c, "users", "The guide says how they sign in: keygate docs single-sign-on")
		},
	})
}

func newUsersGet(a *app) *cobra.Command {
	return shows(oneUser(a), &cobra.Command{Use: "get USER_ID", Short: "Show a user"}, (*client.Client).User, userFields)
}

func newUsersUpdate(a *app) *cobra.Command {
	role, state := "", ""
	c := &cobra.Command{
		Use: "update USER_ID", Short: "Change the role of a user, suspend or resume it",
		Long: `Change the role of a user, suspend or resume it. When the command ends, the change is in force
on every node; the sessions of a user that is suspended have ended.

If the server maps a claim of the identity provider to roles, the next sign-in of the user sets
its role again.`,
		Example: "  keygate users update ada@example.com --role editor\n  keygate users update ada@example.com --state suspended",
		PreRunE: func(*cobra.Command, []string) error {
			if role == "" && state == "" {
				return usagef("nothing to change: give --role or --state")
			}
			return nil
		},
	}
	c.Flags().StringVar(&role, "role", "", "`role`: viewer, editor or admin")
	c.Flags().StringVar(&state, "state", "", "`state`: active or suspended")
	return shows(oneUser(a), c, func(api *client.Client, ctx context.Context, id string) (*client.User, error) {
		var p client.UserPatch
		if role != "" {
			p.Role = client.Set(role)
		}
		if state != "" {
			p.State = client.Set(state)
		}
		return api.UpdateUser(ctx, id, p)
	}, userFields)
}

func newUsersDelete(a *app) *cobra.Command {
	nothing := func(context.Context, *client.Client, *client.User) (lost, error) { return lost{}, nil }
	remove := func(api *client.Client, ctx context.Context, id string) (*client.User, error) {
		return api.DeleteUser(ctx, id)
	}
	return destroys(oneUser(a), &cobra.Command{Use: "delete USER_ID", Short: "Delete a user, who stays barred until it is invited"},
		destroyer[client.User]{"delete", (*client.Client).User, nothing, remove, userLabel, userFields})
}

func tokenFields(t *client.UserToken) []terminal.Field {
	return []terminal.Field{
		{"TOKEN ID", t.TokenID}, {"PREFIX", t.TokenPrefix}, {"USER ID", t.UserID}, {"MACHINE", str(t.Machine)}, {"ADDRESS", t.Address},
		{"CREATED", terminal.Moment(&t.CreatedAt)}, {"EXPIRES", terminal.Moment(&t.ExpiresAt)}, {"LAST USED", terminal.Moment(t.LastUsedAt)},
	}
}

// userOf returns the identifier of the user that args name, or of the calling user if they name none.
func (a *app) userOf(api *client.Client, args []string) (string, error) {
	if len(args) > 0 {
		return a.userID(api, args[0])
	}
	account, err := api.Account(a.Context)
	switch {
	case err != nil:
		return "", err
	case account.User == nil:
		return "", usagef("no user given: give its identifier or email as the argument")
	}
	return account.User.UserID, nil
}

func newUsersTokens(a *app) *cobra.Command {
	o := &client.ListOptions{}
	c := &cobra.Command{
		Use: "tokens [USER_ID]", Short: "List the tokens of a user, newest first",
		Long: `List the tokens of a user, newest first: those of its command lines that have signed in with
keygate login --sso or --device, and have not expired. Without an argument they are your own.`,
	}
	var args []string
	c = lists(a, c, lister[client.UserToken]{
		options: o, check: emptyFlags,
		find: func(ctx context.Context, api *client.Client) (iter.Seq2[client.UserToken, error], error) {
			user, err := a.userOf(api, args)
			if err != nil {
				return nil, err
			}
			return api.UserTokens(ctx, user, *o), nil
		},
		columns: []terminal.Column{{Name: "TOKEN ID"}, {Name: "PREFIX", Rank: 1}, {Name: "MACHINE", Flex: true}, {Name: "ADDRESS", Rank: 2}, {Name: "EXPIRES"}, {Name: "LAST USED", Rank: 3}},
		row: func(t *client.UserToken) []string {
			return []string{t.TokenID, t.TokenPrefix, str(t.Machine), t.Address, a.When(&t.ExpiresAt), a.When(t.LastUsedAt)}
		},
		empty: func(c *cobra.Command) string {
			return noneMatch(c, "tokens", "Sign in: keygate login --url URL --sso")
		},
	})
	run := c.RunE
	c.Args = atMost(1)
	c.RunE = func(c *cobra.Command, given []string) error {
		args = given
		return run(c, nil)
	}
	return c
}

func newUsersRevoke(a *app) *cobra.Command {
	token := ""
	c := a.confirmFlag(&cobra.Command{
		Use: "revoke [USER_ID]", Short: "Revoke the tokens of a user, or one of them",
		Long: `Revoke the tokens of a user, or the one of --token-id. When the command ends, every node refuses
them. Without an argument they are your own. The sessions of the user in browsers go on:
keygate users update --state suspended ends them too.`,
		Example: "  keygate users revoke ada@example.com\n  keygate users revoke --token-id tok_01jz8y5c3te9b8r2m6q4v7x0dd",
		Args:    atMost(1),
	})
	c.Flags().StringVar(&token, "token-id", "", "`id` of the token")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := noneEmpty(c); err != nil {
			return err
		}
		api, err := a.connect()
		if err != nil {
			return err
		}
		user, err := a.userOf(api, args)
		if err != nil {
			return err
		}
		what := "all tokens of user " + user
		if token != "" {
			what = "token " + token
		}
		if err := a.Confirm(func() (terminal.Loss, error) { return terminal.Loss{Verb: "revoke", What: what}, nil }); err != nil {
			return err
		}
		if token != "" {
			revoked, err := api.RevokeUserToken(c.Context(), user, token)
			if err != nil {
				return err
			}
			return a.Destroyed("revoke", what, func() error { return show(a, revoked, tokenFields) })
		}
		revoked, err := api.RevokeUserTokens(c.Context(), user)
		if err != nil {
			return err
		}
		return a.Destroyed("revoke", fmt.Sprintf("%d tokens of user %s", len(revoked), user), func() error { return nil })
	}
	return c
}

func invitationFields(i *client.Invitation) []terminal.Field {
	return append([]terminal.Field{
		{"INVITATION ID", i.InvitationID}, {"EMAIL", i.Email}, {"ROLE", i.Role}, {"EXPIRES", terminal.Moment(&i.ExpiresAt)},
	}, filled(terminal.Field{"LINK", i.Link})...)
}

func newUsersInvite(a *app) *cobra.Command {
	in := client.InvitationRequest{}
	c := &cobra.Command{
		Use: "invite EMAIL --role ROLE", Short: "Invite a user",
		Long: `Invite a user: the link that this command shows lets an account of the identity provider with
this verified email sign in for the first time, once, within 72 hours. Send it yourself; it is
not shown again.`,
		Example: "  keygate users invite ada@example.com --role editor",
		Args:    atMost(1),
	}
	c.Flags().StringVar(&in.Role, "role", "", "`role`: viewer, editor or admin")
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 || strings.TrimSpace(args[0]) == "" || in.Role == "" {
			return usagef("EMAIL and --role are required: see keygate users invite --help")
		}
		in.Email = args[0]
		api, err := a.connect()
		if err != nil {
			return err
		}
		made, err := api.Invite(c.Context(), in)
		if err != nil {
			return err
		}
		return show(a, made, invitationFields)
	}
	return c
}

func newUsersInvitations(a *app) *cobra.Command {
	o := &client.ListOptions{}
	return lists(a, &cobra.Command{Use: "invitations", Short: "List invitations that can still be used, newest first", Args: noArgs}, lister[client.Invitation]{
		options: o, check: emptyFlags,
		find: func(ctx context.Context, api *client.Client) (iter.Seq2[client.Invitation, error], error) {
			return api.Invitations(ctx, *o), nil
		},
		columns: []terminal.Column{{Name: "INVITATION ID"}, {Name: "EMAIL", Flex: true}, {Name: "ROLE"}, {Name: "EXPIRES"}},
		row: func(i *client.Invitation) []string {
			return []string{i.InvitationID, i.Email, i.Role, a.When(&i.ExpiresAt)}
		},
		empty: func(c *cobra.Command) string {
			return noneMatch(c, "invitations", "Create one: keygate users invite EMAIL --role ROLE")
		},
	})
}

func newUsersUninvite(a *app) *cobra.Command {
	same := func(_ *client.Client, ref string) (string, error) { return ref, nil }
	return shows(&one{app: a, flag: "invitation-id", usage: "`id` of the invitation" + alsoArgument, find: same},
		&cobra.Command{Use: "uninvite INVITATION_ID", Short: "Delete an invitation, whose link then no longer works"},
		func(api *client.Client, ctx context.Context, id string) (*client.Invitation, error) {
			return api.DeleteInvitation(ctx, id)
		}, invitationFields)
}
