package api

import (
	"fmt"
	"strings"

	"berth/schema/authority"
)

// Bounds of a request, in bytes.
const (
	maxURL    = 2 << 10
	maxReason = 200
)

func checkLength(c *call) *failure {
	if len(c.URL.Path)+len(c.URL.RawQuery) > maxURL {
		return &failure{code: codeTooLong, message: fmt.Sprintf("path and query may have at most %d bytes", maxURL)}
	}
	return nil
}

// checkProject checks that X-Project-ID agrees with the path (requirement A18).
func checkProject(c *call) *failure {
	for _, id := range c.Header.Values("X-Project-ID") {
		tenant, project, ok := splitProject(id)
		if !ok || c.tenant != "" && tenant != c.tenant || c.project != "" && project != c.project {
			return &failure{code: codeProject,
				message: "X-Project-ID names another project than the path: remove the header, or set it to <tenant>.<project> of the path"}
		}
		if before := c.who.within; before != (authority.Scope{}) && before != (authority.Scope{Tenant: tenant, Project: project}) {
			return &failure{code: codeProject, message: "X-Project-ID is given twice with different projects: give it once"}
		}
		c.who.within = authority.Scope{Tenant: tenant, Project: project}
	}
	return nil
}

// checkBreakGlass checks that X-Break-Glass is on an admin path only, with a reason (requirement B2).
func checkBreakGlass(c *call) *failure {
	reasons := c.Header.Values("X-Break-Glass")
	if c.route == nil || !c.route.admin {
		if len(reasons) > 0 {
			return &failure{code: codeMisplaced, message: "X-Break-Glass is valid for paths under " + admin + " only: remove it"}
		}
		return nil
	}
	reason := strings.TrimSpace(strings.Join(reasons, " "))
	if reason == "" || len(reason) > maxReason || !printable(reason) {
		return &failure{code: codeBreakGlass,
			message: fmt.Sprintf("an admin path needs the header X-Break-Glass with the reason, at most %d printable characters; it is "+
				"audited", maxReason)}
	}
	c.who.actor.BreakGlass = reason
	return nil
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func notAllowed(r *route, tenant, project string, params map[string]string) *failure {
	f := &failure{code: codeMethod, message: "this path does not take the method: the header Allow names those it takes"}
	if r.writes != "" {
		file := r.file(tenant, project, params)
		f.code, f.details = codeWrite, map[string]any{"file": file}
		f.message = fmt.Sprintf("a write is a merged pull request: change %s in the estate's repository", file)
	}
	return f
}
