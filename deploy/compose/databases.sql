-- Run once, when the volume of the database is new. The platform's database is made by POSTGRES_DB.
CREATE DATABASE duebridge_partner;
