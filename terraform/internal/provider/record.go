package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/keygate/keygate/client"
)

// record is the resource of any kind: one record of the API.
type record struct {
	kind   *kind
	client *client.Client
}

// known is what the provider keeps beside the state, in private data.
type known struct {
	Seen    map[string]any `json:"seen"`    // attributes of the record as the API had them when Terraform last saw them
	Managed []string       `json:"managed"` // attributes that were configured when they were last applied
}

const knownKey = "known"

// private is private data, in the request or the response of a call.
type private interface {
	GetKey(ctx context.Context, key string) ([]byte, diag.Diagnostics)
	SetKey(ctx context.Context, key string, value []byte) diag.Diagnostics
}

// Metadata implements resource.Resource.
func (r *record) Metadata(_ context.Context, _ resource.MetadataRequest, res *resource.MetadataResponse) {
	res.TypeName = "keygate_" + r.kind.noun
}

// Schema implements resource.Resource.
func (r *record) Schema(_ context.Context, _ resource.SchemaRequest, res *resource.SchemaResponse) {
	res.Schema = r.kind.schema()
}

// Configure implements resource.ResourceWithConfigure.
func (r *record) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	r.client, _ = req.ProviderData.(*client.Client)
}

// ImportState implements resource.ResourceWithImportState: the identifiers of the path of a record, joined by slashes.
func (r *record) ImportState(ctx context.Context, req resource.ImportStateRequest, res *resource.ImportStateResponse) {
	names := r.kind.parameters()
	parts := strings.SplitN(req.ID, "/", len(names))
	if len(parts) != len(names) || slices.Contains(parts, "") {
		res.Diagnostics.AddError("The identifier is not valid", fmt.Sprintf("%q is not of the form %s.", req.ID, strings.Join(names, "/")))
		return
	}
	for i, name := range names {
		res.Diagnostics.Append(res.State.SetAttribute(ctx, path.Root(name), parts[i])...)
	}
}

// ModifyPlan implements resource.ResourceWithModifyPlan. An attribute that is not configured stays as it is, unless it was
// configured before: then it gets the default of the API.
func (r *record) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, res *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() {
		return
	}
	config := members(req.Config.Raw, &res.Diagnostics)
	if req.State.Raw.IsNull() {
		r.checkSecret(config, &res.Diagnostics)
		for _, name := range r.kind.first {
			if config[name].IsNull() {
				res.Diagnostics.AddAttributeError(path.Root(name), "Missing", name+" is required for a new keygate_"+r.kind.noun+".")
			}
		}
		return
	}
	plan, state := members(req.Plan.Raw, &res.Diagnostics), members(req.State.Raw, &res.Diagnostics)
	before := r.known(ctx, req.Private, &res.Diagnostics)
	if res.Diagnostics.HasError() {
		return
	}
	object := r.kind.object()
	for name, a := range r.kind.Attributes {
		switch {
		case a.Secret:
		case !config[name].IsNull():
			if !a.Patch && !plan[name].Equal(state[name]) {
				res.RequiresReplace = append(res.RequiresReplace, path.Root(name))
			}
		case !a.computed():
		case r.aliasChanges(name, config, state):
			plan[name] = tftypes.NewValue(object.AttributeTypes[name], tftypes.UnknownValue)
		case a.Patch && a.Null && slices.Contains(before.Managed, name):
			plan[name] = tftypes.NewValue(object.AttributeTypes[name], tftypes.UnknownValue)
		default:
			plan[name] = state[name]
		}
	}
	// After an import, the configuration says which version of the secret is there.
	if r.kind.given != "" && len(before.Managed) > 0 && !plan[secretsVersion].Equal(state[secretsVersion]) {
		res.RequiresReplace = append(res.RequiresReplace, path.Root(secretsVersion))
	}
	res.Plan.Raw = tftypes.NewValue(object, plan)
}

// aliasChanges reports whether the attribute gets its value from another one, which changes.
func (r *record) aliasChanges(name string, config, state map[string]tftypes.Value) bool {
	other := r.kind.aliases[name]
	return other != "" && !config[other].IsNull() && !config[other].Equal(state[other])
}

// checkSecret checks that a new secret goes somewhere. A plan that replaces a key fails, before the old one is revoked.
func (r *record) checkSecret(config map[string]tftypes.Value, diags *diag.Diagnostics) {
	if r.kind.secret == "" {
		return
	}
	given := r.kind.given != "" && !config[r.kind.given].IsNull()
	switch file := !config[secretFile].IsNull(); {
	case given && file:
		diags.AddAttributeError(path.Root(secretFile), "Not needed", "The secret is given in "+r.kind.given+": remove "+secretFile+".")
	case !given && !file && r.kind.given != "":
		diags.AddAttributeError(path.Root(secretFile), "Missing",
			"The state never holds the secret. Give it in "+r.kind.given+", or set "+secretFile+" to the path of a file that gets the one that the server generates.")
	case !given && !file:
		diags.AddAttributeError(path.Root(secretFile), "Missing", "The state never holds the secret. Set "+secretFile+" to the path of a file that gets it.")
	case file:
		if _, err := os.Lstat(text(config[secretFile])); err == nil {
			diags.AddAttributeError(path.Root(secretFile), "The file exists already",
				"It may have a secret that is still in use, so it is not overwritten, and nothing is created. Name another file, or move this one away.")
		}
	}
}

// Create implements resource.Resource.
func (r *record) Create(ctx context.Context, req resource.CreateRequest, res *resource.CreateResponse) {
	plan, config := members(req.Plan.Raw, &res.Diagnostics), members(req.Config.Raw, &res.Diagnostics)
	body := map[string]any{}
	later := map[string]any{} // what only an update takes
	for name, a := range r.kind.Attributes {
		v := config[name]
		if !a.given() || v.IsNull() {
			continue
		}
		value, err := toJSON(v, a, false)
		switch {
		case err != nil:
			res.Diagnostics.AddAttributeError(path.Root(name), "Not valid", err.Error())
		case a.Create:
			body[name] = value
		case a.Patch:
			later[name] = value
		}
	}
	if res.Diagnostics.HasError() {
		return
	}
	file := r.openSecretFile(config, &res.Diagnostics)
	if res.Diagnostics.HasError() {
		return
	}
	made := r.create(ctx, plan, config, body, &res.Diagnostics)
	if made == nil {
		discard(file)
		return
	}
	r.writeSecret(file, made, &res.Diagnostics)
	r.store(ctx, plan, config, made, &res.State.Raw, res.Private, &res.Diagnostics)
	if len(later) == 0 || res.Diagnostics.HasError() {
		return
	}
	made = r.call(ctx, &client.Request{Method: http.MethodPatch, Path: r.path(members(res.State.Raw, &res.Diagnostics))}, later, &res.Diagnostics)
	if made != nil {
		r.store(ctx, plan, config, made, &res.State.Raw, res.Private, &res.Diagnostics)
	}
}

// create makes the call that creates the record, and returns the record. It returns nil after an error.
func (r *record) create(ctx context.Context, plan, config map[string]tftypes.Value, body map[string]any, diags *diag.Diagnostics) map[string]any {
	at := r.path(plan)
	switch {
	case !r.kind.Collection:
		if _, err := r.client.Do(ctx, &client.Request{Method: http.MethodGet, Path: at}); err == nil {
			if r.isLasting(plan) {
				return r.call(ctx, &client.Request{Method: http.MethodPatch, Path: at}, body, diags)
			}
			diags.AddError("It exists already", fmt.Sprintf("There is a keygate_%s of this name, so it was not created. Import it: tofu import ADDRESS %s", r.kind.noun, r.importID(plan)))
			return nil
		} else if !client.IsNotFound(err) {
			r.diagnose(err, diags)
			return nil
		}
		return r.call(ctx, &client.Request{Method: http.MethodPut, Path: at}, body, diags)
	case r.kind.given == keySecret && !config[keySecret].IsNull():
		value, err := toJSON(config[keySecret], nil, false)
		if err != nil {
			diags.AddAttributeError(path.Root(keySecret), "Not valid", err.Error())
			return nil
		}
		body[keySecret] = value
		made := r.call(ctx, &client.Request{Method: http.MethodPost, Path: "/v1/keys/import"}, map[string]any{"keys": []any{body}}, diags)
		if made == nil {
			return nil
		}
		if list, ok := made["data"].([]any); ok && len(list) == 1 {
			made, _ = list[0].(map[string]any)
		}
		return made
	default:
		return r.call(ctx, &client.Request{Method: http.MethodPost, Path: at[:strings.LastIndex(at, "/")]}, body, diags)
	}
}

// Read implements resource.Resource. A record that does not exist any more is removed from the state.
func (r *record) Read(ctx context.Context, req resource.ReadRequest, res *resource.ReadResponse) {
	state := members(req.State.Raw, &res.Diagnostics)
	now, _, err := r.get(ctx, r.path(state))
	if client.IsNotFound(err) || err == nil && r.isDeleted(now) {
		res.State.RemoveResource(ctx)
		return
	}
	if err != nil {
		r.diagnose(err, &res.Diagnostics)
		return
	}
	before := r.known(ctx, req.Private, &res.Diagnostics)
	object := r.kind.object()
	for name, a := range r.kind.Attributes {
		if !a.Record || a.Secret {
			continue
		}
		var value tftypes.Value
		if slices.Contains(before.Managed, name) {
			value, err = refreshed(object.AttributeTypes[name], a, state[name], before.Seen[name], now[name])
		} else {
			value, err = fromJSON(object.AttributeTypes[name], a, now[name])
		}
		if err != nil {
			res.Diagnostics.AddAttributeError(path.Root(name), "Not readable", err.Error())
			return
		}
		state[name] = value
	}
	before.Seen = r.seen(now)
	r.keep(ctx, before, res.Private, &res.Diagnostics)
	res.State.Raw = tftypes.NewValue(object, state)
}

// Update implements resource.Resource. It changes nothing if what it would change has been changed since the plan was made.
func (r *record) Update(ctx context.Context, req resource.UpdateRequest, res *resource.UpdateResponse) {
	plan, state, config := members(req.Plan.Raw, &res.Diagnostics), members(req.State.Raw, &res.Diagnostics), members(req.Config.Raw, &res.Diagnostics)
	patch := r.patch(plan, state, config, &res.Diagnostics)
	before := r.known(ctx, req.Private, &res.Diagnostics)
	if res.Diagnostics.HasError() {
		return
	}
	// Something else of the record may change between the two calls.
	for attempt := 0; ; attempt++ {
		now, etag, err := r.get(ctx, r.path(state))
		if err != nil {
			r.diagnose(err, &res.Diagnostics)
			return
		}
		if r.conflicts(patch, before, now, &res.Diagnostics) {
			return
		}
		if len(patch) > 0 {
			now, err = r.do(ctx, (&client.Request{Method: http.MethodPatch, Path: r.path(state)}), etag, patch)
			var refused *client.Error
			if errors.As(err, &refused) && refused.Status == http.StatusPreconditionFailed && attempt < 3 {
				continue
			}
			if err != nil {
				r.diagnose(err, &res.Diagnostics)
				return
			}
		}
		warn(now, &res.Diagnostics)
		r.store(ctx, plan, config, now, &res.State.Raw, res.Private, &res.Diagnostics)
		return
	}
}

// patch returns the body of the update that makes the plan of the state.
func (r *record) patch(plan, state, config map[string]tftypes.Value, diags *diag.Diagnostics) map[string]any {
	changes := func(name string) bool { return !plan[name].Equal(state[name]) }
	again := r.kind.hasSecrets() && changes(secretsVersion)
	moved := slices.ContainsFunc(r.kind.destination, changes)
	patch := map[string]any{}
	for name, a := range r.kind.Attributes {
		if !a.Patch {
			continue
		}
		source := plan[name]
		secret := a.Secret || a.hidesSecret()
		if secret {
			source = config[name]
		}
		follows := moved && (secret || slices.Contains(r.kind.identity, name)) && !source.IsNull()
		if (a.Secret || !changes(name)) && (!secret || !again) && !follows {
			continue
		}
		value, err := toJSON(source, a, true)
		if err != nil {
			diags.AddAttributeError(path.Root(name), "Not valid", err.Error())
		}
		if value != nil || a.Null {
			patch[name] = value
		}
	}
	return patch
}

// conflicts reports whether an attribute that the patch changes is not as it was when the plan was made, and says so.
func (r *record) conflicts(patch map[string]any, before known, now map[string]any, diags *diag.Diagnostics) bool {
	found := false
	for name := range patch {
		a := r.kind.Attributes[name]
		if a.Record && !a.Secret && before.Seen != nil && !reflect.DeepEqual(before.Seen[name], now[name]) {
			diags.AddAttributeError(path.Root(name), "Changed meanwhile", name+" was changed by somebody else after this plan was made, so nothing was changed. Make a new plan.")
			found = true
		}
	}
	return found
}

// Delete implements resource.Resource.
func (r *record) Delete(ctx context.Context, req resource.DeleteRequest, res *resource.DeleteResponse) {
	state := members(req.State.Raw, &res.Diagnostics)
	at := r.path(state)
	if r.isLasting(state) {
		res.Diagnostics.AddWarning("It stays", fmt.Sprintf("The %s %s exists as long as its gateway, so it stays as it is.", r.kind.noun, r.kind.lasting))
		return
	}
	_, err := r.client.Do(ctx, &client.Request{Method: http.MethodDelete, Path: at})
	if err == nil || client.IsNotFound(err) {
		return
	}
	if now, _, getErr := r.get(ctx, at); getErr == nil && r.isDeleted(now) {
		return
	}
	r.diagnose(err, &res.Diagnostics)
}

// isLasting reports whether the record is made and deleted with another one.
func (r *record) isLasting(values map[string]tftypes.Value) bool {
	return r.kind.lasting != "" && text(values["name"]) == r.kind.lasting
}

func (r *record) isDeleted(now map[string]any) bool {
	return r.kind.deleted != nil && r.kind.deleted(now)
}

// get reads a record, and its ETag.
func (r *record) get(ctx context.Context, at string) (map[string]any, string, error) {
	got, err := r.client.Do(ctx, &client.Request{Method: http.MethodGet, Path: at})
	if err != nil {
		return nil, "", err
	}
	now, err := parse(got.Body)
	fields, _ := now.(map[string]any)
	return fields, got.Header.Get("ETag"), err
}

// do makes a call with a body, on the condition that the record has the ETag, if there is one. It returns the record of the response.
func (r *record) do(ctx context.Context, call *client.Request, etag string, body map[string]any) (map[string]any, error) {
	var err error
	if call.Body, err = json.Marshal(body); err != nil {
		return nil, err
	}
	if etag != "" {
		client.IfMatch(etag)(call)
	}
	got, err := r.client.Do(ctx, call)
	if err != nil {
		return nil, err
	}
	made, err := parse(got.Body)
	fields, _ := made.(map[string]any)
	return fields, err
}

// call makes a call, and returns the record of the response, or nil after an error, which it adds to diags.
func (r *record) call(ctx context.Context, call *client.Request, body map[string]any, diags *diag.Diagnostics) map[string]any {
	made, err := r.do(ctx, call, "", body)
	if err != nil {
		r.diagnose(err, diags)
		return nil
	}
	warn(made, diags)
	return made
}

// warn adds the warnings of a response.
func warn(made map[string]any, diags *diag.Diagnostics) {
	warnings, _ := made["warnings"].([]any)
	for _, w := range warnings {
		diags.AddWarning("Probably a mistake", fmt.Sprint(w))
	}
}

// store makes the state of a plan that was applied: its values, and those of the record where it has none yet.
func (r *record) store(ctx context.Context, plan, config map[string]tftypes.Value, made map[string]any, raw *tftypes.Value, to private, diags *diag.Diagnostics) {
	state, object := maps.Clone(plan), r.kind.object()
	now := known{Seen: r.seen(made)}
	for name, a := range r.kind.Attributes {
		if !config[name].IsNull() && !a.Secret {
			now.Managed = append(now.Managed, name)
		}
		if state[name].IsKnown() {
			continue
		}
		value, err := fromJSON(object.AttributeTypes[name], a, made[name])
		if err != nil {
			diags.AddAttributeError(path.Root(name), "Not readable", err.Error())
			return
		}
		state[name] = value
	}
	slices.Sort(now.Managed)
	*raw = tftypes.NewValue(object, state)
	r.keep(ctx, now, to, diags)
}

// seen returns the fields of a record that an update can change. None of them is secret, since no record has secrets.
func (r *record) seen(now map[string]any) map[string]any {
	seen := map[string]any{}
	for name, a := range r.kind.Attributes {
		if a.Patch && a.Record && !a.Secret {
			seen[name] = now[name]
		}
	}
	return seen
}

func (r *record) keep(ctx context.Context, now known, to private, diags *diag.Diagnostics) {
	content, err := json.Marshal(now)
	if err != nil {
		diags.AddError("Private data", err.Error())
		return
	}
	diags.Append(to.SetKey(ctx, knownKey, content)...)
}

// known returns what keep has kept, or nothing after an import.
func (r *record) known(ctx context.Context, from private, diags *diag.Diagnostics) known {
	content, problems := from.GetKey(ctx, knownKey)
	diags.Append(problems...)
	var k known
	if len(content) == 0 {
		return k
	}
	parsed, err := parse(content)
	if err == nil {
		err = json.Unmarshal(content, &k)
	}
	if err != nil {
		diags.AddError("Private data", err.Error())
		return k
	}
	fields, _ := parsed.(map[string]any)
	k.Seen, _ = fields["seen"].(map[string]any) // with numbers as parse has them
	return k
}

// path returns the path of a record. What is not known yet is empty.
func (r *record) path(values map[string]tftypes.Value) string {
	return parameter.ReplaceAllStringFunc(r.kind.Path, func(m string) string {
		return url.PathEscape(text(values[strings.Trim(m, "{}")]))
	})
}

// importID returns the identifier by which a record is imported.
func (r *record) importID(values map[string]tftypes.Value) string {
	var parts []string
	for _, name := range r.kind.parameters() {
		parts = append(parts, text(values[name]))
	}
	return strings.Join(parts, "/")
}

// openSecretFile creates the file of the secret, or returns nil if there is none.
func (r *record) openSecretFile(config map[string]tftypes.Value, diags *diag.Diagnostics) *os.File {
	if r.kind.secret == "" {
		return nil
	}
	r.checkSecret(config, diags)
	name := text(config[secretFile])
	if name == "" || diags.HasError() {
		return nil
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		diags.AddAttributeError(path.Root(secretFile), "The file cannot be created", err.Error()+". Nothing was created. Name a file in a directory that exists.")
		return nil
	}
	return file
}

func discard(file *os.File) {
	if file != nil {
		_ = file.Close()
		_ = os.Remove(file.Name())
	}
}

// writeSecret writes the secret of a new record to its file.
func (r *record) writeSecret(file *os.File, made map[string]any, diags *diag.Diagnostics) {
	if file == nil {
		return
	}
	secret, _ := made[r.kind.secret].(string)
	if secret == "" {
		discard(file)
		diags.AddError("The secret is lost", fmt.Sprint("The connection failed after the server had generated the secret, and it shows a secret only once. Apply again: it creates another one. ", made["message"]))
		return
	}
	_, err := file.WriteString(secret + "\n")
	if err = errors.Join(err, file.Close()); err != nil {
		discard(file)
		diags.AddError("The secret is lost", "It could not be written to the file: "+err.Error()+". Apply again: it creates another one.")
	}
}

// members returns the attributes of a resource.
func members(v tftypes.Value, diags *diag.Diagnostics) map[string]tftypes.Value {
	var values map[string]tftypes.Value
	if err := v.As(&values); err != nil {
		diags.AddError("Not a resource", err.Error())
	}
	return maps.Clone(values) // which v shares
}

func text(v tftypes.Value) string {
	var s string
	if v.IsKnown() && !v.IsNull() {
		_ = v.As(&s)
	}
	return s
}
