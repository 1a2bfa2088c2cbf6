package githubtest

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

var forbidden = &problem{http.StatusForbidden, "Resource not accessible by integration"}

// needs is what of an App's permissions an operation asks for, as GitHub's pages
// of "permissions required for GitHub Apps" have it: any of the names, at least
// at the level. What is not here needs none but to read metadata.
var needs = map[string]struct {
	any   []string
	write bool
}{
	"GET /repos/{owner}/{repo}/pulls":                                                   {[]string{"pull_requests"}, false},
	"GET /repos/{owner}/{repo}/pulls/{pull_number}":                                     {[]string{"pull_requests"}, false},
	"GET /repos/{owner}/{repo}/pulls/{pull_number}/reviews":                             {[]string{"pull_requests"}, false},
	"GET /repos/{owner}/{repo}/commits/{commit_sha}/pulls":                              {[]string{"pull_requests", "contents"}, false},
	"GET /repos/{owner}/{repo}/branches/{branch}":                                       {[]string{"contents"}, false},
	"GET /repos/{owner}/{repo}/commits/{ref}/check-runs":                                {[]string{"checks"}, false},
	"POST /repos/{owner}/{repo}/check-runs":                                             {[]string{"checks"}, true},
	"GET /repos/{owner}/{repo}/check-runs/{check_run_id}":                               {[]string{"checks"}, false},
	"PATCH /repos/{owner}/{repo}/check-runs/{check_run_id}":                             {[]string{"checks"}, true},
	"GET /repos/{owner}/{repo}/check-runs/{check_run_id}/annotations":                   {[]string{"checks"}, false},
	"GET /repos/{owner}/{repo}/commits/{ref}/statuses":                                  {[]string{"statuses"}, false},
	"POST /repos/{owner}/{repo}/statuses/{sha}":                                         {[]string{"statuses"}, true},
	"GET /repos/{owner}/{repo}/issues/comments":                                         {talk, false},
	"GET /repos/{owner}/{repo}/issues/{issue_number}/comments":                          {talk, false},
	"POST /repos/{owner}/{repo}/issues/{issue_number}/comments":                         {talk, true},
	"GET /repos/{owner}/{repo}/issues/comments/{comment_id}":                            {talk, false},
	"PATCH /repos/{owner}/{repo}/issues/comments/{comment_id}":                          {talk, true},
	"DELETE /repos/{owner}/{repo}/issues/comments/{comment_id}":                         {talk, true},
	"GET /repos/{owner}/{repo}/issues/comments/{comment_id}/reactions":                  {talk, false},
	"POST /repos/{owner}/{repo}/issues/comments/{comment_id}/reactions":                 {talk, true},
	"DELETE /repos/{owner}/{repo}/issues/comments/{comment_id}/reactions/{reaction_id}": {talk, true},
	"GET /repos/{owner}/{repo}/hooks":                                                   {[]string{"repository_hooks"}, false},
	"GET /repos/{owner}/{repo}/hooks/{hook_id}/deliveries":                              {[]string{"repository_hooks"}, false},
	"GET /repos/{owner}/{repo}/hooks/{hook_id}/deliveries/{delivery_id}":                {[]string{"repository_hooks"}, false},
	"POST /repos/{owner}/{repo}/hooks/{hook_id}/deliveries/{delivery_id}/attempts":      {[]string{"repository_hooks"}, true},
	"git-upload-pack":  {[]string{"contents"}, false},
	"git-receive-pack": {[]string{"contents"}, true},
}

// talk is what comments on pull requests need: either will do.
var talk = []string{"issues", "pull_requests"}

// may says whether a token suffices for an operation.
func (t Token) may(op string) bool {
	n, known := needs[op]
	if t.Permissions == nil || !known {
		return true
	}
	return slices.ContainsFunc(n.any, func(name string) bool {
		level := t.Permissions[name]
		return level == "write" || level == "read" && !n.write
	})
}

// SetPermission says what somebody may do in the repository from now on, as
// Options.Permissions; "" is nothing.
func (s *Server) SetPermission(login, permission string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.permissions[login] = permission
}

// getPermission knows four permissions; of a role that lies between it names
// the lesser.
func (s *Server) getPermission(c *call) (reply, *problem) {
	login := c.path["username"]
	if s.gone[login] {
		return reply{}, notThere
	}
	role := s.permissions[login]
	permission := role
	switch role {
	case "":
		role, permission = "none", "none"
	case "maintain":
		permission = "write"
	case "triage":
		permission = "read"
	}
	user := s.userShape(login)
	user["role_name"] = role
	user["permissions"] = obj{
		"admin": role == "admin", "maintain": role == "admin" || role == "maintain", "push": permission == "admin" || permission == "write",
		"triage": permission != "none" && role != "read", "pull": permission != "none",
	}
	return ok(obj{"permission": permission, "role_name": role, "user": user})
}

// association is how somebody relates to the repository.
func (s *Server) association(login string) string {
	switch {
	case login == s.o.Owner:
		return "OWNER"
	case s.permissions[login] != "":
		return "COLLABORATOR"
	case strings.HasSuffix(login, "[bot]"):
		return "NONE"
	}
	return "CONTRIBUTOR"
}

// widest are the permissions an App may have of those asked for, or what it may
// not have.
func (a *App) widest(asked map[string]string) (granted map[string]string, beyond string) {
	if len(asked) == 0 {
		return maps.Clone(a.Permissions), ""
	}
	for name, level := range asked {
		has, known := a.Permissions[name]
		if a.Permissions != nil && (!known || level == "write" && has == "read") {
			return nil, name
		}
	}
	return maps.Clone(asked), ""
}
