"""What the port `Database` promises, as tests. Each implementation inherits them."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from autograder.storage import (
    Database,
    DatabaseError,
    SerializationFailure,
    Transaction,
    TransactionFailed,
    UniqueViolation,
)

PATIENCE_S = 20.0

TABLES = """
CREATE TABLE seen (id TEXT PRIMARY KEY, word TEXT NOT NULL);
CREATE TABLE accounts (id BIGINT PRIMARY KEY, owner TEXT UNIQUE, cents BIGINT NOT NULL CHECK (cents >= 0));
CREATE TABLE effects (id TEXT, note TEXT, blob BYTEA, share DOUBLE PRECISION);
CREATE TABLE pairs (one TEXT, other TEXT, UNIQUE (one, other));
"""

MARK = "INSERT INTO seen (id, word) VALUES (:id, :word) ON CONFLICT DO NOTHING"
INSERT = "INSERT INTO seen (id, word) VALUES (:id, :word)"


class AbortedError(Exception):
    """What a test leaves a transaction by."""


class DatabaseContract:
    """What holds everywhere. A fixture `db` has `TABLES`, and ten connections."""

    async def passes(self, db):
        """Long enough for whatever is not waiting for somebody to be over."""
        for _ in range(20):
            await db.fetch_one("SELECT 1 AS one")

    async def still_waits(self, db, task):
        await self.passes(db)
        return not task.done()

    async def count(self, db, table="seen"):
        row = await db.fetch_one(f"SELECT count(*) AS n FROM {table}")  # noqa: S608 - ours
        return row["n"]

    # -- statements

    async def test_it_is_what_the_port_says(self, db):
        assert isinstance(db, Database)
        async with db.transaction() as tx:
            assert isinstance(tx, Transaction)

    async def test_rows_are_plain_dicts_and_none_where_there_is_none(self, db):
        assert await db.fetch_all("SELECT id, word FROM seen") == []
        assert await db.fetch_one("SELECT id, word FROM seen") is None
        await db.execute(INSERT, id="a", word="one")
        await db.execute(INSERT, id="b", word="two")
        rows = await db.fetch_all("SELECT id, word FROM seen ORDER BY id")
        assert rows == [{"id": "a", "word": "one"}, {"id": "b", "word": "two"}]
        assert all(type(row) is dict for row in rows)
        assert await db.fetch_one("SELECT word FROM seen WHERE id = :id", id="b") == {"word": "two"}

    async def test_execute_counts_the_rows_it_changed(self, db):
        assert await db.execute(MARK, id="a", word="one") == 1
        assert await db.execute(MARK, id="a", word="two") == 0
        assert await db.execute(INSERT, id="b", word="two") == 1
        assert await db.execute("UPDATE seen SET word = :w", w="x") == 2
        assert await db.execute("UPDATE seen SET word = :w WHERE id = 'c'", w="x") == 0
        assert await db.execute("DELETE FROM seen WHERE id = :id", id="a") == 1
        assert await db.execute("SELECT id FROM seen") == 0

    async def test_returning_gives_the_rows_that_were_written(self, db):
        sql = f"{MARK} RETURNING id"
        assert await db.fetch_one(sql, id="a", word="one") == {"id": "a"}
        assert await db.fetch_one(sql, id="a", word="two") is None
        assert await self.count(db) == 1

    @pytest.mark.parametrize(
        "text", ["", "it's", 'a "b"', ":id", "semi;colon", "два\n", "x" * 5000, "' OR 1=1 --"]
    )
    async def test_values_are_never_part_of_the_text(self, db, text):
        await db.execute(INSERT, id=text, word="w")
        row = await db.fetch_one(
            "SELECT id, ':id' AS said FROM seen WHERE id = :id -- :no", id=text
        )
        assert row == {"id": text, "said": ":id"}

    async def test_kinds_of_values_come_back_as_they_were(self, db):
        sql = "INSERT INTO effects (id, note, blob, share) VALUES (:id, :note, :blob, :share)"
        await db.execute(sql, id="a", note=None, blob=bytes(range(256)), share=0.25)
        row = await db.fetch_one("SELECT id, note, blob, share FROM effects")
        assert row == {"id": "a", "note": None, "blob": bytes(range(256)), "share": 0.25}
        await db.execute(
            "INSERT INTO accounts (id, owner, cents) VALUES (:id, :owner, :cents)",
            id=2**62, owner="x", cents=0,
        )  # fmt: skip
        assert await db.fetch_one("SELECT id FROM accounts") == {"id": 2**62}

    async def test_a_name_may_be_used_twice_and_null_is_a_value(self, db):
        sql = "INSERT INTO pairs (one, other) VALUES (:it, :it)"
        for _ in range(2):
            await db.execute(sql, it=None)  # two NULLs are not equal
        await db.execute(sql, it="x")
        with pytest.raises(UniqueViolation):
            await db.execute(sql, it="x")
        assert await self.count(db, "pairs") == 3

    @pytest.mark.parametrize(
        ("sql", "values", "said"),
        [
            (INSERT, {"id": "a"}, ":word, and no value"),
            (INSERT, {"id": "a", "word": "w", "more": 1}, "no :more"),
            ("", {}, "empty"),
            ("-- nothing", {}, "empty"),
            ("DELETE FROM seen; DELETE FROM accounts", {}, "One statement at a time"),
            ("BEGIN", {}, "db.transaction"),
            ("rollback", {}, "db.transaction"),
            ("SAVEPOINT here", {}, "(?i)savepoint"),
            ("SELECT x FROM nowhere", {}, "nowhere"),
            ("SELECT nothing FROM seen", {}, "nothing"),
            ("INSERT INTO seen (id) VALUES ('a')", {}, "word"),
            ("INSERT INTO accounts (id, cents) VALUES (1, -1)", {}, "(?i)check"),
            ("INSERT OR IGNORE INTO seen (id, word) VALUES ('a', 'b')", {}, "OR"),
            ("SELECT id FROM accounts WHERE id = :id", {"id": 2**70}, "int"),
        ],
    )
    async def test_what_is_wrong_is_said(self, db, sql, values, said):
        with pytest.raises(DatabaseError, match=said):
            await db.execute(sql, **values)
        assert await db.fetch_one("SELECT 1 AS one") == {
            "one": 1
        }  # and nothing is the worse for it

    # -- transactions

    async def test_nobody_sees_it_before_the_commit_and_everybody_after(self, db):
        async with db.transaction() as tx:
            await tx.execute(INSERT, id="a", word="one")
            assert await tx.fetch_one("SELECT word FROM seen") == {"word": "one"}
            assert await self.count(db) == 0
        assert await self.count(db) == 1

    async def test_an_exception_undoes_everything_and_passes(self, db):
        with pytest.raises(AbortedError):
            async with db.transaction() as tx:
                await tx.execute(INSERT, id="a", word="one")
                await tx.execute("INSERT INTO pairs (one, other) VALUES ('x', 'y')")
                raise AbortedError
        assert await self.count(db) == await self.count(db, "pairs") == 0
        await db.execute(INSERT, id="a", word="one")  # and nothing is held any more

    async def test_a_cancelled_task_undoes_everything(self, db):
        inside = asyncio.Event()

        async def work():
            async with db.transaction() as tx:
                await tx.execute(INSERT, id="a", word="one")
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(db.execute(INSERT, id="a", word="two"), PATIENCE_S)
        assert await db.fetch_one("SELECT word FROM seen") == {"word": "two"}

    async def test_a_statement_that_fails_ends_the_transaction(self, db):
        await db.execute(INSERT, id="a", word="one")
        async with db.transaction() as tx:
            await tx.execute(INSERT, id="b", word="two")
            with pytest.raises(UniqueViolation):
                await tx.execute(INSERT, id="a", word="again")
            with pytest.raises(TransactionFailed):
                await tx.execute(INSERT, id="c", word="three")
        assert await db.fetch_all("SELECT id FROM seen") == [{"id": "a"}]  # b is undone, too

    async def test_a_transaction_is_of_no_use_after_its_block(self, db):
        async with db.transaction() as tx:
            pass
        with pytest.raises(DatabaseError, match="is over"):
            await tx.execute(INSERT, id="a", word="one")

    async def test_each_statement_sees_what_was_committed_before_it(self, db):
        async with db.transaction() as tx:
            assert await tx.fetch_one("SELECT count(*) AS n FROM seen") == {"n": 0}
            await db.execute(INSERT, id="a", word="one")
            assert await tx.fetch_one("SELECT count(*) AS n FROM seen") == {"n": 1}

    # -- two at a time

    async def test_whoever_inserts_the_same_key_waits_for_the_first_to_commit(self, db):
        async with db.transaction() as tx:
            await tx.execute(INSERT, id="a", word="first")
            second = asyncio.create_task(db.execute(MARK, id="a", word="second"))
            assert await self.still_waits(db, second)
        assert await asyncio.wait_for(second, PATIENCE_S) == 0
        assert await db.fetch_all("SELECT word FROM seen") == [{"word": "first"}]

    async def test_and_inserts_it_if_the_first_does_not(self, db):
        with suppress(AbortedError):
            async with db.transaction() as tx:
                await tx.execute(MARK, id="a", word="first")
                second = asyncio.create_task(db.execute(MARK, id="a", word="second"))
                assert await self.still_waits(db, second)
                raise AbortedError
        assert await asyncio.wait_for(second, PATIENCE_S) == 1
        assert await db.fetch_all("SELECT word FROM seen") == [{"word": "second"}]

    async def test_without_on_conflict_the_second_fails_after_waiting(self, db):
        async with db.transaction() as tx:
            await tx.execute(INSERT, id="a", word="first")
            second = asyncio.create_task(db.execute(INSERT, id="a", word="second"))
            assert await self.still_waits(db, second)
        with pytest.raises(UniqueViolation):
            await asyncio.wait_for(second, PATIENCE_S)

    async def test_waiters_go_on_when_a_statement_of_the_first_fails(self, db):
        await db.execute(INSERT, id="z", word="there")
        async with db.transaction() as tx:
            await tx.execute(INSERT, id="a", word="first")
            second = asyncio.create_task(db.execute(INSERT, id="a", word="second"))
            assert await self.still_waits(db, second)
            with pytest.raises(UniqueViolation):
                await tx.execute(INSERT, id="z", word="again")
            assert await asyncio.wait_for(second, PATIENCE_S) == 1

    async def test_other_keys_wait_for_nobody(self, db):
        async with db.transaction() as tx:
            await tx.execute(INSERT, id="a", word="first")
            await tx.execute("INSERT INTO effects (id) VALUES ('a')")
            async with db.transaction() as other:
                await other.execute(INSERT, id="b", word="second")
                await other.execute("INSERT INTO effects (id) VALUES ('a')")
            assert await self.count(db) == 1
        assert await self.count(db) == await self.count(db, "effects") == 2

    async def test_two_that_look_before_they_insert_both_find_nothing(self, db):
        async with db.transaction() as one, db.transaction() as other:
            for tx in (one, other):
                assert await tx.fetch_one("SELECT id FROM effects WHERE id = 'a'") is None
            for tx in (one, other):
                await tx.execute("INSERT INTO effects (id) VALUES ('a')")
        assert await self.count(db, "effects") == 2

    async def test_whoever_changes_the_same_row_waits_and_works_on_the_new_one(self, db):
        await db.execute("INSERT INTO accounts (id, owner, cents) VALUES (1, 'me', 100)")
        add = "UPDATE accounts SET cents = cents + :more WHERE id = 1"
        async with db.transaction() as tx:
            await tx.execute(add, more=10)
            second = asyncio.create_task(db.execute(add, more=5))
            assert await self.still_waits(db, second)
            assert await db.fetch_one("SELECT cents FROM accounts") == {"cents": 100}
        assert await asyncio.wait_for(second, PATIENCE_S) == 1
        assert await db.fetch_one("SELECT cents FROM accounts") == {"cents": 115}

    async def test_what_was_read_before_may_be_old_by_now(self, db):
        await db.execute("INSERT INTO accounts (id, cents) VALUES (1, 100)")
        async with db.transaction() as tx:
            row = await tx.fetch_one("SELECT cents FROM accounts WHERE id = 1")
            await db.execute("UPDATE accounts SET cents = 500 WHERE id = 1")
            await tx.execute("UPDATE accounts SET cents = :c WHERE id = 1", c=row["cents"] + 1)
        assert await db.fetch_one("SELECT cents FROM accounts") == {"cents": 101}

    async def test_whoever_deletes_a_changed_row_waits(self, db):
        await db.execute(INSERT, id="a", word="one")
        async with db.transaction() as tx:
            await tx.execute("UPDATE seen SET word = 'two' WHERE id = 'a'")
            second = asyncio.create_task(db.execute("DELETE FROM seen WHERE id = 'a'"))
            assert await self.still_waits(db, second)
        assert await asyncio.wait_for(second, PATIENCE_S) == 1

    async def test_a_row_of_ones_own_can_be_changed_and_deleted(self, db):
        async with db.transaction() as one, db.transaction() as other:
            for tx, name in ((one, "a"), (other, "b")):
                await tx.execute("INSERT INTO effects (id, note) VALUES (:id, 'new')", id=name)
                await tx.execute("UPDATE effects SET note = 'changed' WHERE id = :id", id=name)
        async with db.transaction() as tx:
            await tx.execute("DELETE FROM effects WHERE id = 'a'")
            await tx.execute("INSERT INTO effects (id, note) VALUES ('a', 'again')")
        rows = await db.fetch_all("SELECT id, note FROM effects ORDER BY id")
        assert rows == [{"id": "a", "note": "again"}, {"id": "b", "note": "changed"}]

    async def test_a_key_of_two_columns_and_one_that_is_changed_into(self, db):
        async with db.transaction() as tx:
            await tx.execute("INSERT INTO pairs (one, other) VALUES ('x', 'y')")
            await db.execute("INSERT INTO pairs (one, other) VALUES ('x', 'z')")
            change = "UPDATE pairs SET other = 'y' WHERE other = 'z'"
            second = asyncio.create_task(db.execute(change))
            assert await self.still_waits(db, second)
        with pytest.raises(UniqueViolation):
            await asyncio.wait_for(second, PATIENCE_S)

    async def test_on_conflict_do_update_waits_and_then_updates(self, db):
        sql = f"{INSERT} ON CONFLICT (id) DO UPDATE SET word = seen.word || :word"
        async with db.transaction() as tx:
            await tx.execute(INSERT, id="a", word="one")
            second = asyncio.create_task(db.execute(sql, id="a", word="two"))
            assert await self.still_waits(db, second)
        await asyncio.wait_for(second, PATIENCE_S)
        assert await db.fetch_one("SELECT word FROM seen") == {"word": "onetwo"}

    async def test_a_circle_of_waiting_ends_for_one_of_them(self, db):
        outcomes = []
        first_done = [asyncio.Event(), asyncio.Event()]

        async def work(number):
            mine, yours = ("a", "b") if number == 0 else ("b", "a")
            try:
                async with db.transaction() as tx:
                    await tx.execute(MARK, id=mine, word=str(number))
                    first_done[number].set()
                    await first_done[1 - number].wait()
                    await tx.execute(MARK, id=yours, word=str(number))
            except SerializationFailure:
                outcomes.append("sent back")
            else:
                outcomes.append("committed")

        await asyncio.wait_for(asyncio.gather(work(0), work(1)), PATIENCE_S)
        assert sorted(outcomes) == ["committed", "sent back"]
        assert await self.count(db) == 2

    async def test_whoever_gives_up_waiting_is_in_nobodys_way(self, db):
        async with db.transaction() as tx:
            await tx.execute(INSERT, id="a", word="first")
            second = asyncio.create_task(db.execute(MARK, id="a", word="second"))
            assert await self.still_waits(db, second)
            second.cancel()
            with suppress(asyncio.CancelledError):
                await second
        async with db.transaction() as tx:
            await tx.execute("DELETE FROM seen WHERE id = 'a'")
        assert await asyncio.wait_for(db.execute(MARK, id="a", word="third"), PATIENCE_S) == 1

    async def test_a_hundred_duplicates_at_once_have_one_effect(self, db):
        async def work(number):
            async with db.transaction() as tx:
                if await tx.execute(MARK, id=f"m{number % 5}", word="w"):
                    await tx.execute("INSERT INTO effects (id) VALUES (:id)", id=f"m{number % 5}")

        await asyncio.gather(*map(work, range(100)))
        assert await self.count(db, "effects") == 5

    async def test_the_eleventh_transaction_waits_for_a_connection(self, db):
        leave = asyncio.Event()
        inside = asyncio.Semaphore(0)

        async def work():
            async with db.transaction() as tx:
                await tx.fetch_one("SELECT 1 AS one")
                inside.release()
                await leave.wait()

        tasks = [asyncio.create_task(work()) for _ in range(10)]
        for _ in tasks:
            await asyncio.wait_for(inside.acquire(), PATIENCE_S)
        eleventh = asyncio.create_task(db.execute(INSERT, id="a", word="w"))
        done, _ = await asyncio.wait({eleventh}, timeout=0.1)
        assert not done
        leave.set()
        await asyncio.wait_for(asyncio.gather(*tasks, eleventh), PATIENCE_S)

    async def test_a_transaction_runs_one_statement_at_a_time(self, db):
        async with db.transaction() as tx:
            both = [tx.fetch_one("SELECT 1 AS one") for _ in range(2)]
            answers = await asyncio.gather(*both, return_exceptions=True)
        assert sorted(type(each).__name__ for each in answers) == ["DatabaseError", "dict"]
