package decide

import (
	"fmt"
	"slices"

	"berth/schema"
	"berth/schema/estate"
)

// Codes of warnings about fields of a config that have no effect.
const (
	codeNoUser = "ref.missing-user"
	codePast   = "date.past"
)

// configsWithoutEffect warns of users in the configs of changed units who are no users of the unit,
// and of what is over, such as a reservation. They depend on the projects that a shared runtime
// serves, and on the day, so that the loader does not know them.
func (d *Decider) configsWithoutEffect(touched []schema.PathChange, head *forced, today string) (out []schema.Diagnostic) {
	for _, c := range touched {
		key, _ := schema.KeyAt(c.Path)
		unit := head.effective.Unit(key)
		if unit == nil || unit.SharedRuntime != "" {
			continue
		}
		v, h := head.Result.Desired.Version(key.Tenant, unit.App, unit.Version), head.Result.Desired.Header(key)
		if v == nil || h == nil {
			continue
		}
		warn := func(path, code, format string, args ...any) {
			if path = "spec.config." + path; h.Has(path) { // else the version has it
				at := h.At(path)
				out = append(out, schema.Diagnostic{
					Severity: schema.SeverityWarning, Code: code, File: at.File, Line: at.Line, Column: at.Column, Path: path,
					Message: path + ": " + fmt.Sprintf(format, args...),
				})
			}
		}
		facts := d.o.Loader.ConfigFacts(v, unit.Config)
		users := make([]string, len(unit.Users))
		for i, u := range unit.Users {
			users[i] = u.Name
		}
		for _, n := range facts.Names {
			if n.Sort == schema.UserName && !slices.Contains(users, n.Name) {
				warn(n.Path, codeNoUser, "%s is not a user of %s%s", n.Name, key, estate.Meant(n.Name, users))
			}
		}
		for _, end := range facts.Ends {
			if day := end.At.UTC().Format("2006-01-02"); day < today {
				warn(end.Path, codePast, "%s ended on %s and has no effect: change its time, or take it away", end.What, day)
			}
		}
	}
	return out
}
