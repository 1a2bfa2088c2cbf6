package agent

import (
	"context"
	"slices"
	"strings"

	"berth/runtimes"
)

// preflight lists all conflicts at once, before anything is written.
func (a *Agent) preflight(ctx context.Context, op *runtimes.Preflight) error {
	for _, p := range op.Paths {
		if err := a.allow.check(p); err != nil {
			return err
		}
	}
	paths := slices.Clone(op.Paths)
	var found []string
	for _, one := range op.Services {
		spec, err := a.serviceSpec(&one)
		if err != nil {
			return err
		}
		obstacles, err := a.services.obstacles(ctx, service{name: one.Name, unit: one.Unit, spec: spec})
		if err != nil {
			return err
		}
		found = append(found, obstacles...)
		for _, t := range serviceTargets(spec) {
			if !t.shared {
				paths = append(paths, t.path)
			}
		}
	}
	foreign, err := a.foreignPaths(paths)
	if err != nil {
		return err
	}
	var unique []string
	for _, what := range append(found, foreign...) {
		if !slices.Contains(unique, what) {
			unique = append(unique, what)
		}
	}
	if len(unique) == 0 {
		return nil
	}
	return &Fault{Code: CodeForeign, Message: bounded([]byte(strings.Join(unique, "; ")))}
}

// foreignPaths describes those of paths that exist and that Berth did not make.
func (a *Agent) foreignPaths(paths []string) ([]string, error) {
	rec, err := a.readPaths()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, p := range paths {
		there, err := exists(p)
		if err != nil {
			return nil, err
		}
		if there && !rec.has(p) {
			found = append(found, foreignPath(p))
		}
	}
	return found, nil
}
