package provider

import (
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/keygate/keygate/client"
)

// diagnose adds an error of the API, each of its problems at the attribute that it names.
func (r *record) diagnose(err error, diags *diag.Diagnostics) {
	var refused *client.Error
	if !errors.As(err, &refused) {
		diags.AddError("The server cannot be reached", err.Error())
		return
	}
	title := "The API refused the call"
	if refused.Status >= http.StatusInternalServerError {
		title = "The server failed"
	}
	if len(refused.Problems) == 0 {
		r.problem(title, refused.Field, refused.Error(), diags)
		return
	}
	for _, p := range refused.Problems {
		field := ""
		if p.Field != nil {
			field = *p.Field
		}
		r.problem(title, field, p.Message, diags)
	}
}

// problem adds an error at a field, as far as it is one of the resource.
func (r *record) problem(title, field, message string, diags *diag.Diagnostics) {
	at, found := r.kind.find(field)
	switch {
	case found:
		diags.AddAttributeError(at, title, message)
	case field != "" && !strings.HasPrefix(message, field):
		diags.AddError(title, field+": "+message)
	default:
		diags.AddError(title, message)
	}
}

// ofImport is the start of the fields of the one key that an import has.
var ofImport = regexp.MustCompile(`^keys(\[0\]|\.0)\.`)

// find returns the path of a field such as limits[0].quota, or as much of it as names something. It reports whether it names
// an attribute.
func (k *kind) find(field string) (path.Path, bool) {
	field = ofImport.ReplaceAllString(field, "")
	steps := strings.FieldsFunc(field, func(c rune) bool { return strings.ContainsRune(".[]", c) })
	if len(steps) == 0 || k.Attributes[steps[0]] == nil && (k.given != steps[0]) {
		return path.Empty(), false
	}
	at, a := path.Root(steps[0]), k.Attributes[steps[0]]
	for _, step := range steps[1:] {
		index, err := strconv.Atoi(step)
		switch {
		case a == nil:
			return at, true
		case a.Type == "list" && err == nil:
			at, a = at.AtListIndex(index), a.Of
		case a.Type == "map":
			return at.AtMapKey(step), true
		case a.Attributes[step] != nil:
			at, a = at.AtName(step), a.Attributes[step]
		default:
			return at, true
		}
	}
	return at, true
}
