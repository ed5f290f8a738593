// SPDX-License-Identifier: Apache-2.0

package dataset

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Kinds of sources.
const (
	CSVFiles     = "csv"
	ParquetFiles = "parquet"
	Postgres     = "postgres"
	SQLite       = "sqlite"
	Trino        = "trino"
)

// Source says where a dataset's rows are. The zero value is the CSV file at the dataset's path. No secret stands in it: a
// password is read from a file or the environment when the data plane starts, and is never written anywhere.
type Source struct {
	Kind string `yaml:"kind" json:"kind"` // csv (default), parquet, postgres, sqlite or trino
	// URL reaches the server: postgres://user@host:port/database?sslmode=verify-full, or https://host:port of Trino.
	URL          string `yaml:"url,omitempty" json:"url,omitempty"`
	User         string `yaml:"user,omitempty" json:"user,omitempty"` // Trino's; PostgreSQL's stands in the url
	PasswordFile string `yaml:"password_file,omitempty" json:"passwordFile,omitempty"`
	PasswordEnv  string `yaml:"password_env,omitempty" json:"passwordEnv,omitempty"`
	CA           string `yaml:"ca,omitempty" json:"ca,omitempty"` // authorities of the server's certificate, PEM; default the system's
	Catalog      string `yaml:"catalog,omitempty" json:"catalog,omitempty"`
	Schema       string `yaml:"schema,omitempty" json:"schema,omitempty"` // PostgreSQL: public without it
	Table        string `yaml:"table,omitempty" json:"table,omitempty"`
	// Immutable says that nothing writes the SQLite file while the data plane runs, so that it may stand on a read-only disk.
	Immutable bool `yaml:"immutable,omitempty" json:"immutable,omitempty"`
}

// KindOf is the source's kind: csv when none is configured.
func (d Dataset) KindOf() string {
	if d.Source == nil || d.Source.Kind == "" {
		return CSVFiles
	}
	return d.Source.Kind
}

// ValidateSource checks where the rows are, without looking there.
func (d Dataset) ValidateSource() error {
	kind, s := d.KindOf(), Source{}
	if d.Source != nil {
		s = *d.Source
	}
	allowed := map[string][]string{
		CSVFiles: {}, ParquetFiles: {}, SQLite: {"table", "immutable"},
		Postgres: {"url", "password_file", "password_env", "ca", "schema", "table"},
		Trino:    {"url", "user", "password_file", "password_env", "ca", "catalog", "schema", "table"},
	}
	may, ok := allowed[kind]
	if !ok {
		return fmt.Errorf(".source.kind: %q: csv, parquet, postgres, sqlite or trino", kind)
	}
	immutable := ""
	if s.Immutable {
		immutable = "true"
	}
	given := map[string]string{
		"url": s.URL, "user": s.User, "password_file": s.PasswordFile, "password_env": s.PasswordEnv, "ca": s.CA,
		"catalog": s.Catalog, "schema": s.Schema, "table": s.Table, "immutable": immutable,
	}
	for _, name := range []string{"url", "user", "password_file", "password_env", "ca", "catalog", "schema", "table", "immutable"} {
		if given[name] != "" && !slices.Contains(may, name) {
			return fmt.Errorf(".source.%s: a source of kind %s has none", name, kind)
		}
	}
	for _, name := range []string{"catalog", "schema", "table"} {
		if strings.ContainsRune(given[name], 0) {
			return fmt.Errorf(".source.%s: no NUL", name)
		}
	}
	server := kind == Postgres || kind == Trino
	switch {
	case server && d.Path != "":
		return fmt.Errorf(".path: a source of kind %s has none", kind)
	case (server || kind == SQLite) && s.Table == "":
		return errors.New(".source.table: is missing")
	case kind == Trino && (s.User == "" || s.Catalog == "" || s.Schema == ""):
		return errors.New(".source: Trino needs user, catalog and schema")
	case s.PasswordFile != "" && s.PasswordEnv != "":
		return errors.New(".source: password_file or password_env, not both")
	case server:
		return s.validateURL(kind)
	}
	return nil
}

// validateURL refuses a password in the url: configurations are copied, shown and sent to support.
func (s Source) validateURL(kind string) error {
	u, err := url.Parse(s.URL)
	if err != nil || u.Host == "" && (kind != Postgres || u.Query().Get("host") == "") {
		return errors.New(".source.url: not a url with a host") // err quotes the url
	}
	if _, has := u.User.Password(); has || u.Query().Has("password") {
		return errors.New(".source.url: has a password; use password_file or password_env, and change the password")
	}
	switch {
	case kind == Postgres && u.Scheme != "postgres" && u.Scheme != "postgresql":
		return errors.New(".source.url: want postgres://user@host:port/database")
	case kind == Postgres && u.User.Username() == "":
		return errors.New(".source.url: the user is missing")
	case kind == Trino && u.Scheme != "https" && !(u.Scheme == "http" && local(u.Hostname()) && s.PasswordFile+s.PasswordEnv == ""):
		return errors.New(".source.url: want https://host:port (http only on this machine and without a password)")
	case kind == Trino && (u.User != nil || u.RawQuery != "" || strings.Trim(u.Path, "/") != ""):
		return errors.New(".source.url: only scheme, host and port")
	}
	return nil
}

func local(host string) bool { return host == "localhost" || host == "127.0.0.1" || host == "::1" }
