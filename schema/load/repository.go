package load

import (
	"context"
	"errors"

	"berth/schema"
)

// Tenant reads the tenant.yaml of a tenant, alone; ok is false if it is not
// valid. It is for whoever must know where a tenant's documents are before the
// estate can be read.
func (l *Loader) Tenant(ctx context.Context, name string, data []byte) (t *schema.Tenant, ok bool, err error) {
	key := schema.Key{Kind: schema.KindTenant, Name: name}
	path, err := key.Path()
	if err != nil {
		return nil, false, nil
	}
	more := len(data) > maxBytes
	if more {
		data = data[:maxBytes]
	}
	f := schema.File{Path: path, Mode: schema.ModePlain, Blob: BlobID(data), Size: int64(len(data))}
	err = l.withJudge(ctx, func(j *judge) error {
		t, _ = (&reader{judge: j, paths: l.paths}).read(f, key, data, more).spec.(*schema.Tenant)
		return nil
	})
	if errors.Is(err, errBroke) {
		return nil, false, nil
	}
	return t, t != nil, err
}
