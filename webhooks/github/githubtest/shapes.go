package githubtest

import (
	"encoding/base64"
	"fmt"
	"maps"
	"strconv"
	"strings"
)

// obj is a JSON object. GitHub's description defines the shapes below: every answer is
// checked against it.
type obj map[string]any

func nodeID(kind string, id int64) string {
	return base64.RawURLEncoding.EncodeToString([]byte(kind + ":" + strconv.FormatInt(id, 10)))
}

// epoch is the creation time of objects without a time of their own.
const epoch = "2024-01-01T00:00:00Z"

// userID is the id of a user or App. The caller holds mu.
func (s *Server) userID(login string) int64 {
	id := s.users[login]
	if id == 0 {
		id = int64(len(s.users) + 1)
		s.users[login] = id
	}
	return id
}

func (s *Server) userShape(login string) obj {
	id, api, kind := s.userID(login), s.url+"/users/"+strings.NewReplacer("[", "%5B", "]", "%5D").Replace(login), "User"
	if strings.HasSuffix(login, "[bot]") {
		kind = "Bot"
	}
	return obj{
		"login": login, "id": id, "node_id": nodeID("User", id), "type": kind, "site_admin": false, "gravatar_id": "",
		"avatar_url": s.url + "/avatars/" + strconv.FormatInt(id, 10), "html_url": s.url + "/" + strconv.FormatInt(id, 10), "url": api,
		"followers_url": api + "/followers", "following_url": api + "/following{/other_user}", "gists_url": api + "/gists{/gist_id}",
		"starred_url": api + "/starred{/owner}{/repo}", "subscriptions_url": api + "/subscriptions", "organizations_url": api + "/orgs",
		"repos_url": api + "/repos", "events_url": api + "/events{/privacy}", "received_events_url": api + "/received_events",
	}
}

// meShape is the authenticated user.
func (s *Server) meShape(login string) obj {
	u := s.userShape(login)
	for k, v := range (obj{
		"name": login, "company": nil, "blog": "", "location": nil, "email": nil, "hireable": nil, "bio": nil,
		"twitter_username": nil, "public_repos": 1, "public_gists": 0, "followers": 0, "following": 0,
		"created_at": epoch, "updated_at": epoch, "private_gists": 0, "total_private_repos": 0, "owned_private_repos": 0,
		"disk_usage": 0, "collaborators": 0, "two_factor_authentication": true,
	}) {
		u[k] = v
	}
	return u
}

func (s *Server) api(parts ...string) string {
	return s.url + "/repos/" + s.o.Owner + "/" + s.o.Repo + strings.Join(parts, "")
}

func (s *Server) html(parts ...string) string {
	return s.url + "/" + s.o.Owner + "/" + s.o.Repo + strings.Join(parts, "")
}

// repoShape is the repository.
func (s *Server) repoShape() obj { return s.repoShapeOf(s.o.Owner, 1) }

// repoShapeOf is the repository, or a user's fork of it.
func (s *Server) repoShapeOf(owner string, id int64) obj {
	base := "/" + owner + "/" + s.o.Repo
	html, clone := s.url+base, s.url+base+".git"
	open := 0
	for _, p := range s.pulls {
		if p.open {
			open++
		}
	}
	r := obj{
		"id": id, "node_id": nodeID("Repository", id), "name": s.o.Repo, "full_name": base[1:],
		"owner": s.userShape(owner), "private": true, "visibility": "private", "html_url": html, "url": s.url + "/repos" + base,
		"description": nil, "fork": owner != s.o.Owner, "homepage": nil, "language": nil, "license": nil, "mirror_url": nil,
		"forks": 0, "forks_count": 0, "stargazers_count": 0, "watchers": 0, "watchers_count": 0, "subscribers_count": 0, "network_count": 0,
		"open_issues": open, "open_issues_count": open, "size": 1, "default_branch": s.main, "topics": []any{}, "is_template": false,
		"has_issues": true, "has_projects": false, "has_wiki": false, "has_pages": false, "has_downloads": false, "has_discussions": false,
		"archived": false, "disabled": false, "created_at": epoch, "updated_at": epoch, "pushed_at": epoch,
		"allow_rebase_merge": true, "allow_merge_commit": true, "allow_squash_merge": true, "allow_forking": false, "web_commit_signoff_required": false,
		"permissions": obj{"admin": false, "push": true, "pull": true},
		"clone_url":   clone, "git_url": "git://" + strings.TrimPrefix(clone, "http://"), "ssh_url": "git@" + strings.TrimPrefix(clone, "http://"), "svn_url": html,
	}
	for name, path := range map[string]string{
		"archive": "/{archive_format}{/ref}", "assignees": "/assignees{/user}", "blobs": "/git/blobs{/sha}", "branches": "/branches{/branch}",
		"collaborators": "/collaborators{/collaborator}", "comments": "/comments{/number}", "commits": "/commits{/sha}", "compare": "/compare/{base}...{head}",
		"contents": "/contents/{+path}", "contributors": "/contributors", "deployments": "/deployments", "downloads": "/downloads", "events": "/events",
		"forks": "/forks", "git_commits": "/git/commits{/sha}", "git_refs": "/git/refs{/sha}", "git_tags": "/git/tags{/sha}", "hooks": "/hooks",
		"issue_comment": "/issues/comments{/number}", "issue_events": "/issues/events{/number}", "issues": "/issues{/number}", "keys": "/keys{/key_id}",
		"labels": "/labels{/name}", "languages": "/languages", "merges": "/merges", "milestones": "/milestones{/number}",
		"notifications": "/notifications{?since,all,participating}", "pulls": "/pulls{/number}", "releases": "/releases{/id}", "stargazers": "/stargazers",
		"statuses": "/statuses/{sha}", "subscribers": "/subscribers", "subscription": "/subscription", "tags": "/tags", "teams": "/teams", "trees": "/git/trees{/sha}",
	} {
		r[name+"_url"] = s.url + "/repos" + base + path
	}
	return r
}

func (s *Server) pullShape(p *pull) obj {
	n := strconv.Itoa(p.number)
	state, repo := "closed", s.repoShape()
	if p.open {
		state = "open"
	}
	link := func(url string) obj { return obj{"href": url} }
	end := func(owner, branch, commit string, repo any) obj {
		return obj{"label": owner + ":" + branch, "ref": branch, "sha": commit, "user": s.userShape(owner), "repo": repo}
	}
	head := end(s.o.Owner, p.branch, p.head, repo)
	if p.fork != nil {
		head = end(p.fork.login, p.branch, p.head, nil)
		if s.forks[p.fork.login] == p.fork {
			head["repo"] = s.repoShapeOf(p.fork.login, p.fork.id)
		} else {
			s.beyond = true // GitHub does this without describing it
		}
	}
	var mergeCommit any
	switch {
	case p.mergeCommit != "":
		mergeCommit = p.mergeCommit
	case p.testMerge != "":
		mergeCommit = p.testMerge
	}
	base := s.branches[p.base]
	if !p.open {
		base = p.forkedAt
	}
	return obj{
		"id": p.id, "node_id": nodeID("PullRequest", p.id), "number": p.number, "state": state, "locked": false, "title": p.title, "body": nil,
		"user": s.userShape(p.author), "labels": []any{}, "milestone": nil, "draft": false, "assignee": nil, "assignees": []any{},
		"requested_reviewers": []any{}, "requested_teams": []any{}, "author_association": s.association(p.author), "auto_merge": nil, "active_lock_reason": nil,
		"created_at": stamp(p.made), "updated_at": stamp(p.changed), "closed_at": maybe(p.closed), "merged_at": maybe(p.merged), "merge_commit_sha": mergeCommit,
		"head": head, "base": end(s.o.Owner, p.base, base, repo),
		"url": s.api("/pulls/", n), "html_url": s.html("/pull/", n), "diff_url": s.html("/pull/", n, ".diff"), "patch_url": s.html("/pull/", n, ".patch"),
		"issue_url": s.api("/issues/", n), "commits_url": s.api("/pulls/", n, "/commits"), "review_comments_url": s.api("/pulls/", n, "/comments"),
		"review_comment_url": s.api("/pulls/comments{/number}"), "comments_url": s.api("/issues/", n, "/comments"), "statuses_url": s.api("/statuses/", p.head),
		"_links": obj{
			"self": link(s.api("/pulls/", n)), "html": link(s.html("/pull/", n)), "issue": link(s.api("/issues/", n)),
			"comments": link(s.api("/issues/", n, "/comments")), "review_comments": link(s.api("/pulls/", n, "/comments")),
			"review_comment": link(s.api("/pulls/comments{/number}")), "commits": link(s.api("/pulls/", n, "/commits")), "statuses": link(s.api("/statuses/", p.head)),
		},
	}
}

// pullDetail has the fields that only the answer about one pull request has.
func (s *Server) pullDetail(p *pull, mergeable any) obj {
	state := "unknown"
	switch mergeable {
	case true:
		state = "clean"
	case false:
		state = "dirty"
	}
	d := obj{
		"merged": !p.merged.IsZero(), "merged_by": nil, "mergeable": mergeable, "mergeable_state": state, "rebaseable": nil, "maintainer_can_modify": false,
		"comments": s.talk(p.number), "review_comments": 0, "commits": 1, "additions": 0, "deletions": 0, "changed_files": 0,
	}
	if p.mergedBy != "" {
		d["merged_by"] = s.userShape(p.mergedBy)
	}
	return d
}

func (s *Server) statusShape(st *status) obj {
	id := strconv.FormatInt(st.id, 10)
	return obj{
		"id": st.id, "node_id": nodeID("Status", st.id), "url": s.api("/statuses/", st.commit), "avatar_url": s.url + "/avatars/" + id,
		"state": st.state, "description": st.description, "target_url": st.target, "context": st.context, "creator": s.userShape(st.login),
		"created_at": stamp(st.made), "updated_at": stamp(st.made),
	}
}

func (s *Server) appShape(slug string) obj {
	id := s.userID(slug)
	return obj{
		"id": id, "slug": slug, "node_id": nodeID("App", id), "owner": s.userShape(s.o.Owner), "name": slug, "description": nil,
		"external_url": s.url + "/apps/" + slug, "html_url": s.url + "/apps/" + slug, "created_at": epoch, "updated_at": epoch,
		"permissions": obj{"checks": "write", "contents": "write", "metadata": "read", "pull_requests": "write"}, "events": []any{"pull_request", "push"},
	}
}

// checkPulls lists the open pull requests of a check run; GitHub leaves out those of
// forks.
func (s *Server) checkPulls(commit string) []any {
	out := []any{}
	repo := obj{"id": 1, "url": s.api(), "name": s.o.Repo}
	for _, p := range s.pulls {
		if p.open && p.head == commit && p.fork == nil {
			out = append(out, obj{
				"id": p.id, "number": p.number, "url": s.api("/pulls/", strconv.Itoa(p.number)),
				"head": obj{"ref": p.branch, "sha": p.head, "repo": repo}, "base": obj{"ref": p.base, "sha": s.branches[p.base], "repo": repo},
			})
		}
	}
	return out
}

func (s *Server) checkShape(r *checkRun) obj {
	id := strconv.FormatInt(r.id, 10)
	var conclusion, title, summary, text any
	for to, from := range map[*any]string{&conclusion: r.conclusion, &title: r.title, &summary: r.summary, &text: r.text} {
		if from != "" {
			*to = from
		}
	}
	return obj{
		"id": r.id, "node_id": nodeID("CheckRun", r.id), "name": r.name, "head_sha": r.commit, "external_id": r.external,
		"url": s.api("/check-runs/", id), "html_url": s.html("/runs/", id), "details_url": r.details, "status": r.status, "conclusion": conclusion,
		"started_at": stamp(r.started), "completed_at": maybe(r.completed), "check_suite": obj{"id": r.suite}, "app": s.appShape(r.app),
		"pull_requests": s.checkPulls(r.commit),
		"output": obj{
			"title": title, "summary": summary, "text": text, "annotations_count": len(r.annotations), "annotations_url": s.api("/check-runs/", id, "/annotations"),
		},
	}
}

// checkEvent is the event of a check run, with its whole suite.
func (s *Server) checkEvent(action string, r *checkRun, by string, more obj) Delivery {
	shape := s.checkShape(r)
	shape["check_suite"] = s.suiteShape(r, false)
	body := obj{"action": action, "check_run": shape, "sender": s.userShape(by)}
	maps.Copy(body, more)
	return s.event("check_run", action, body)
}

// suiteShape is the suite of a check run; with whole, as in the suite's own event.
func (s *Server) suiteShape(r *checkRun, whole bool) obj {
	branch := any(nil)
	for _, p := range s.pulls {
		if p.head == r.commit {
			branch = p.branch
		}
	}
	suite := obj{
		"id": r.suite, "node_id": nodeID("CheckSuite", r.suite), "head_branch": branch, "head_sha": r.commit, "status": "queued", "conclusion": nil,
		"url": s.api(fmt.Sprintf("/check-suites/%d", r.suite)), "before": nil, "after": r.commit, "pull_requests": s.checkPulls(r.commit),
		"app": s.appShape(r.app), "created_at": epoch, "updated_at": epoch,
	}
	if !whole {
		return suite
	}
	runs := 0
	for _, o := range s.checks {
		if o.suite == r.suite {
			runs++
		}
	}
	suite["latest_check_runs_count"], suite["check_runs_url"] = runs, s.api(fmt.Sprintf("/check-suites/%d/check-runs", r.suite))
	if log, err := s.git.log("", r.commit); err == nil && len(log) == 1 {
		suite["head_commit"] = log[0].shape()
	}
	return suite
}

// shape is a commit as in events other than push.
func (c logged) shape() obj {
	return obj{
		"id": c.id, "tree_id": c.tree, "message": c.message, "timestamp": c.stored,
		"author": obj{"name": c.author, "email": c.authorMail}, "committer": obj{"name": c.committer, "email": c.committerMail},
	}
}

func (s *Server) annotationShape(r *checkRun, a Annotation) obj {
	column := func(n int) any {
		if n == 0 {
			return nil
		}
		return n
	}
	return obj{
		"path": a.Path, "start_line": a.StartLine, "end_line": a.EndLine, "start_column": column(a.StartColumn), "end_column": column(a.EndColumn),
		"annotation_level": a.Level, "title": a.Title, "message": a.Message, "raw_details": a.RawDetails, "blob_href": s.html("/blob/", r.commit, "/", a.Path),
	}
}
