package githubtest

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

var forbidden = &problem{http.StatusForbidden, "Resource not accessible by integration"}

// needs lists the App permissions of operations, from GitHub's pages "permissions
// required for GitHub Apps": any of the names, at least at the level. Other operations
// need to read metadata only.
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

// talk is the permission for comments on pull requests: either one.
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

// SetPermission sets a user's permission in the repository, as in Options.Permissions;
// "": none.
func (s *Server) SetPermission(login, permission string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.permissions[login] = permission
}

// getPermission has four permissions; a role between two is shown as the lower.
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

// association is a user's relation to the repository.
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

// widest returns the requested permissions that an App may have, or those it may not.
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
