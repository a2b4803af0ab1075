CREATE TABLE inbox (id INTEGER PRIMARY KEY AUTOINCREMENT, space TEXT NOT NULL, parcel BLOB NOT NULL);
CREATE TABLE windows (space TEXT PRIMARY KEY, parcel BLOB NOT NULL);
CREATE TABLE snapshots (id INTEGER PRIMARY KEY AUTOINCREMENT, space TEXT NOT NULL, snapshot TEXT NOT NULL);
CREATE INDEX snapshots_of ON snapshots (space, id);
CREATE TABLE deliveries (id INTEGER PRIMARY KEY AUTOINCREMENT, sender TEXT NOT NULL, number INTEGER NOT NULL, UNIQUE (sender, number));
INSERT INTO inbox (space, parcel) VALUES ('{"model": "m", "place": "p", "segment": "all"}', X'726F7773');
INSERT INTO deliveries (sender, number) VALUES ('w0', 7);
INSERT INTO snapshots (space, snapshot) VALUES ('{"model": "m", "place": "p", "segment": "all"}', '{"schema": 1}');
PRAGMA user_version = 1;
